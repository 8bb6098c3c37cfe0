"""Methods of one object, never of its class, that run with something of ours around them until they are given back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Around = Callable[..., Any]
"""Called as `around(original, *args, **kwargs)`; what it returns is the method's result."""


class OwnMethods:
    """Methods of one object that were wrapped.

    A wrapper that somebody wrapped again stays where it is after `restore`, and only passes calls on.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._is_active = True
        self._wrapped: list[tuple[str, Any, Any]] = []

    def wrap(self, name: str, around: Around) -> None:
        """Have calls of the owner's method `name` go through `around`."""
        before = vars(self._owner).get(name)
        original = getattr(self._owner, name)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs) if self._is_active else original(*args, **kwargs)

        setattr(self._owner, name, method)
        self._wrapped.append((name, before, method))

    def restore(self) -> None:
        """Give every method back."""
        self._is_active = False
        for name, before, method in reversed(self._wrapped):
            if vars(self._owner).get(name) is not method:
                continue
            if before is None:
                delattr(self._owner, name)
            else:
                setattr(self._owner, name, before)
        self._wrapped = []
