"""Remembers how lines of one shape were read, so that a log of a million such lines is parsed by a look-up.

The shape of a line is its text between the numbers and the kind of each number. A shape is trusted once the careful reader gave
what the shape predicts for `VERIFIED` lines, and is checked again every `RECHECK` lines: the memory can make reading faster, not
different.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gradwatch.importers.base import Row

VERIFIED = 3
RECHECK = 64
MAX_SHAPES = 2048
LONG = 30
_NUMBER = re.compile(r"(\d[\d.]*(?:[eE][-+]?\d+)?)")
"""A sign stays in the text, as do nan, inf and a leading point: such lines go to the careful reader."""

_Reader = Callable[[str], Row | None]


def _kind(digits: str) -> str:
    """What a pattern may tell apart in a number: how many digits an integer has, and that it is none."""
    if digits.isdigit():
        return str(len(digits))
    return "long" if len(digits) > LONG else "." if digits[-1] == "." else ""


class _Shape:
    """Which number of the line is which key's; None for a shape that is no row. `seen` counts lines that fitted."""

    __slots__ = ("keys", "seen")

    def __init__(self, keys: dict[str, int] | None) -> None:
        self.keys = keys
        self.seen = 0


class LineShapes:
    """Wraps a careful reader of lines; gives the same rows."""

    def __init__(self, careful: _Reader) -> None:
        self._careful = careful
        self._shapes: dict[str, _Shape] = {}

    def read(self, line: str) -> Row | None:
        """The row of a line, if it is one."""
        parts = _NUMBER.split(line)
        text = "\0".join((*parts[::2], *map(_kind, parts[1::2])))
        shape = self._shapes.get(text)
        if shape is not None and shape.seen >= VERIFIED and shape.seen % RECHECK:
            shape.seen += 1
            if shape.keys is None:
                return None
            values = _predicted(shape.keys, parts)
            if values is not None:
                return Row(values)
        row = self._careful(line)
        self._learn(text, shape, parts, row)
        return row

    def _learn(self, text: str, shape: _Shape | None, parts: list[str], row: Row | None) -> None:
        if row is not None and row.config:
            return
        if shape is not None and _fits(shape, parts, row):
            shape.seen += 1
            return
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        self._shapes[text] = _Shape(None if row is None else _placed(row.values, parts))


def _fits(shape: _Shape, parts: list[str], row: Row | None) -> bool:
    if shape.keys is None or row is None:
        return shape.keys is None and row is None
    return repr(_predicted(shape.keys, parts)) == repr(row.values)


def _predicted(keys: dict[str, int], parts: list[str]) -> dict[str, float] | None:
    values = {}
    for key, at in keys.items():
        value = _value(parts, at)
        if value is None:
            return None
        values[key] = value
    return values


def _value(parts: list[str], at: int) -> float | None:
    try:
        value = float(parts[at])
    except ValueError:  # a version or a date: 1.2.3
        return None
    return -value if parts[at - 1].endswith("-") else value


def _placed(values: dict[str, float], parts: list[str]) -> dict[str, int]:
    """Each key's number: the only one of its value; where there are several, this line teaches nothing."""
    found = {at: repr(_value(parts, at)) for at in range(1, len(parts), 2)}
    places: dict[str, int] = {}
    for key, value in values.items():
        candidates = [at for at, text in found.items() if text == repr(value)]
        if len(candidates) != 1 or parts[candidates[0] - 1].endswith("."):
            return {}
        places[key] = candidates[0]
    return places
