"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
NONFINITE = "×"
GAP = " "


def sparkline(
    steps: Sequence[int], values: Sequence[float], width: int = 48, mark: tuple[int, int] | None = None
) -> tuple[str, str]:
    """The curve, and below it a line that points at the steps of `mark`; both `width` characters at most.

    A bucket of steps shows its largest distance from the median, so that no spike is lost; a non-finite value shows as ×. Where the
    values span more than a factor of 100 the scale is logarithmic.
    """
    if not steps:
        return "", ""
    first, span = steps[0], max(1, steps[-1] - steps[0])
    width = min(width, max(len(steps), 2))
    buckets: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(steps, values, strict=True):
        buckets[(step - first) * (width - 1) // span].append(value)
    finite = sorted(value for value in values if math.isfinite(value))
    scale = _scale(finite)
    middle = finite[len(finite) // 2] if finite else 0.0
    line = "".join(_bucket(bucket, middle, scale) for bucket in buckets)
    if mark is None:
        return line, ""
    low, high = ((min(max(step, first), steps[-1]) - first) * (width - 1) // span for step in mark)
    return line, GAP * low + "▔" * (high - low + 1)


def _bucket(values: list[float], middle: float, scale: tuple[float, float, bool]) -> str:
    if not values:
        return GAP
    if not all(map(math.isfinite, values)):
        return NONFINITE
    low, high, logarithmic = scale
    value = max(values, key=lambda one: abs(_at(one, logarithmic) - _at(middle, logarithmic)))
    if high <= low:
        return BARS[0]
    return BARS[min(len(BARS) - 1, int((_at(value, logarithmic) - low) / (high - low) * len(BARS)))]


def _scale(finite: list[float]) -> tuple[float, float, bool]:
    if not finite:
        return 0.0, 0.0, False
    logarithmic = finite[0] > 0 and finite[-1] > 100 * finite[0]
    return _at(finite[0], logarithmic), _at(finite[-1], logarithmic), logarithmic


def _at(value: float, logarithmic: bool) -> float:
    """The value's height; halves keep a span of ±1e308 finite."""
    return math.log(value) if logarithmic and value > 0 else value / 2
