"""Hooks of ours on a user's modules, which no copy of a module takes along."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)
"""What torch raises where it cannot compute something: in a hook of ours it costs the reading, never the pass."""


class OwnHook:
    """Calls `see`. What `copy.deepcopy` or pickling (`torch.save` of a whole model) makes of it does nothing.

    A copy is not the model that is watched; and what watches holds graphs and weak references, which neither can be.
    """

    __slots__ = ("see",)

    def __init__(self, see: Callable[..., Any]) -> None:
        self.see = see

    def __call__(self, *args: Any) -> Any:
        """What the hook returns."""
        return self.see(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function that takes anything and returns None, and is there where gradwatch is not."""
        return getattr, (nullcontext(), "__exit__")
