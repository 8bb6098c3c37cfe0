"""One decoded JSON object as flat numbers: nested keys joined by '/', numbers in text read, all else left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gradwatch.importers.number_text import number

MAX_DEPTH = 16
MAX_LIST = 16
"""A longer list is a distribution or a table, not a handful of metrics."""


@dataclass(slots=True)
class FlatRecord:
    """The numbers of one object; `nulls` are keys whose null stands for a non-finite number."""

    null_is_nan: bool
    values: dict[str, float] = field(default_factory=dict)
    nulls: list[str] = field(default_factory=list)


def flat(record: dict[str, Any], warn: Callable[[str], None], null_is_nan: bool = False) -> FlatRecord:
    """The numbers of `record`. With `null_is_nan` a null becomes NaN and is listed, else it is left out."""
    found = FlatRecord(null_is_nan=null_is_nan)
    _add(found, "", record.items(), warn)
    return found


def key_text(key: str) -> str:
    """The key as text that every encoding can write: JSON escapes can spell half a surrogate pair."""
    return key if key.isascii() else key.encode("utf-8", "replace").decode("utf-8")


def scalar(value: Any, warn: Callable[[str], None]) -> float | None:
    """A JSON scalar as a number, or None; an integer too large for a float is left out, and said."""
    if isinstance(value, str):
        return number(value)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        warn("an integer too large for a floating-point number was left out")
        return None


def _add(
    found: FlatRecord,
    prefix: str,
    items: Iterable[tuple[str, Any]],
    warn: Callable[[str], None],
    depth: int = MAX_DEPTH,
) -> None:
    for key, value in items:
        name = prefix + key_text(key)
        if type(value) is float:
            found.values[name] = value
        elif value is None:
            if found.null_is_nan:
                found.nulls.append(name)
                found.values[name] = math.nan
        elif isinstance(value, dict | list):
            if depth:
                _add(found, name + "/", _inner(value), warn, depth - 1)
        elif (plain := scalar(value, warn)) is not None:
            found.values[name] = plain


def _inner(value: dict[str, Any] | list[Any]) -> Iterable[tuple[str, Any]]:
    """The members of a nested object, or of a short list of numbers under their places."""
    if isinstance(value, dict):
        return value.items()
    if len(value) > MAX_LIST or not all(isinstance(item, int | float) for item in value):
        return ()
    return ((str(place), item) for place, item in enumerate(value))
