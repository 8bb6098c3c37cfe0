"""Patterns that choose parameters by name: globs, or regular expressions after `re:`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from gradwatch.errors import SettingsError

REGEX = "re:"


def matching(option: str, patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that any of the patterns matches; `option` is what the message calls them (`include`, `exclude`).

    A glob matches a whole name or that of a module above it: `layers.1` takes `layers.1.weight` and not `layers.10.weight`,
    `*.bias` every bias. A regular expression matches anywhere: `re:q_proj|k_proj`. Raises SettingsError where one matches nothing.
    """
    if isinstance(patterns, str):
        raise SettingsError(f"{option}={patterns!r}: a list of patterns is expected, such as [{patterns!r}]")
    names = list(names)
    found: set[str] = set()
    for pattern in patterns:
        hits = set(filter(_test(option, pattern), names))
        if not hits:
            raise SettingsError(f"{option}: {pattern!r} matches no parameter of the model; {_closest(pattern, names)}")
        found |= hits
    return found


def _test(option: str, pattern: str) -> Callable[[str], object]:
    if not pattern.startswith(REGEX):
        return lambda name: any(fnmatchcase(one, pattern) for one in _upwards(name))
    try:
        return re.compile(pattern.removeprefix(REGEX)).search
    except re.error as error:
        raise SettingsError(f"{option}: {pattern!r} is no regular expression ({error})") from error


def _upwards(name: str) -> Iterable[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _closest(pattern: str, names: list[str]) -> str:
    known = list(dict.fromkeys(one for name in names for one in _upwards(name)))
    near = get_close_matches(pattern, known, n=3, cutoff=0.4) or names[:3]
    return f"there are, among {len(names)}, {', '.join(map(repr, near))}"
