"""Statistics that a few wild values cannot move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median


def quantile(ordered: Sequence[float], q: float) -> float:
    """The lower q-quantile of ascending values."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def noise_of(jumps: Sequence[float]) -> float:
    """Standard deviation of a series' noise from its absolute first differences (length ≥ 1).

    For independent noise of deviation σ the differences have deviation σ√2, median absolute value .6745·σ√2 and mean
    absolute value .7979·σ√2. The larger of both estimates is taken: the median is 0 for a series that rarely moves.
    """
    return max(median(jumps) / 0.6745, fmean(jumps) / 0.7979) / math.sqrt(2)
