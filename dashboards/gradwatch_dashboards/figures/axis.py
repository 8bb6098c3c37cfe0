"""The range of a value axis: no early giant may flatten it, and nothing beyond it goes unsaid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WILD = 20.0
"""The axis is cut where the values reach over so many times the span of their middle nine tenths."""

PAD = 0.06


class Axis(NamedTuple):
    """A value axis: `low` and `high` in values (of a log axis too), None where there is nothing to show.

    `beyond` counts the finite values that lie outside, `farthest` is the one farthest away; `undrawable` counts those that a log
    axis cannot hold.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    beyond: int = 0
    farthest: float | None = None
    undrawable: int = 0


def value_axis(lines: Iterable[Sequence[float]], kind: str = "auto") -> Axis:
    """The axis for the values of some lines; `kind` is auto (cut where the values are wild), full or log."""
    values = sorted(value for line in lines for value in line if math.isfinite(value))
    if kind == "log":
        return _log_axis(values)
    if not values:
        return Axis()
    low, high = values[0], values[-1]
    middle = _middle(values) if kind == "auto" else None
    if middle is not None and high - low > WILD * (middle[1] - middle[0]):
        low, high = max(low, middle[0] - (middle[1] - middle[0])), min(high, middle[1] + (middle[1] - middle[0]))
    low, high = _padded(low, high)
    beyond = sum(not low <= value <= high for value in values)
    farthest = max((values[0], values[-1]), key=lambda one: max(low - one, one - high)) if beyond else None
    return Axis(low, high, beyond=beyond, farthest=farthest)


def _middle(values: Sequence[float]) -> tuple[float, float] | None:
    """From the 5th to the 95th percentile; where they are equal, around them by their own size."""
    low, high = values[int(0.05 * (len(values) - 1))], values[math.ceil(0.95 * (len(values) - 1))]
    if low != high:
        return low, high
    return (low - abs(low) / 2, high + abs(high) / 2) if low else None


def _padded(low: float, high: float) -> tuple[float, float]:
    # Halved first: the span of two huge values of opposite sign is beyond a float's range.
    room = (high / 2 - low / 2) * 2 * PAD if high > low else (abs(low) * PAD or 1.0)
    room = room if math.isfinite(room) else 0.0
    return low - room, high + room


def _log_axis(values: Sequence[float]) -> Axis:
    positive = [value for value in values if value > 0]
    if not positive:
        return Axis(log=True, undrawable=len(values))
    low, high = math.log10(positive[0]), math.log10(positive[-1])
    room = (high - low) * PAD or 0.5
    ends = max(low - room, -323.0), min(high + room, 308.0)
    return Axis(10.0 ** ends[0], 10.0 ** ends[1], log=True, undrawable=len(values) - len(positive))
