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
    if high <= low:
        return BARS[0]
    heights = [_at(value, low, logarithmic) for value in values]
    level = _at(middle, low, logarithmic)
    height = max(heights, key=lambda one: abs(one - level))
    return BARS[min(len(BARS) - 1, int((height - low) / (high - low) * len(BARS)))]


def _scale(finite: list[float]) -> tuple[float, float, bool]:
    """Lowest and highest height, and whether the scale is logarithmic: of positive values, beside which zeros lie lowest."""
    if not finite:
        return 0.0, 0.0, False
    positive = [value for value in finite if value > 0]
    logarithmic = bool(positive) and finite[0] >= 0 and positive[-1] > 100 * positive[0]
    if logarithmic:
        return math.log(positive[0]), math.log(positive[-1]), True
    return finite[0] / 2, finite[-1] / 2, False


def _at(value: float, low: float, logarithmic: bool) -> float:
    """The value's height; halves keep a span of ±1e308 finite."""
    if logarithmic:
        return math.log(value) if value > 0 else low
    return value / 2
