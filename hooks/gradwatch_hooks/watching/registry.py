"""Which parameters are watched in this process: twice would count every step twice."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from gradwatch.errors import SettingsError
from gradwatch.quantities.parameter_groups import Member

_WATCHED: WeakIdKeyDictionary[nn.Parameter, str] = WeakIdKeyDictionary()  # type: ignore[type-arg]


def claim(members: Iterable[Member]) -> None:
    """Mark parameters as watched. Raises SettingsError where one of them is already."""
    members = list(members)
    for one in members:
        if one.parameter in _WATCHED:
            raise SettingsError(
                f"parameter {one.name!r} is watched already: detach() the first watcher, or watch the outermost model once"
            )
    for one in members:
        _WATCHED[one.parameter] = one.name


def release(members: Iterable[Member]) -> None:
    """Parameters are no longer watched."""
    for one in members:
        _WATCHED.pop(one.parameter, None)  # type: ignore[no-untyped-call]
