"""The gradient noise scale: how large a batch is before a larger one no longer pays.

B = tr Σ / ‖G‖², with G the gradient of the whole distribution and Σ the covariance of one example's gradient. Source: McCandlish,
Kaplan, Amodei et al. (2018), An Empirical Model of Large-Batch Training, appendix A.1: both are estimated without bias from the
norms of gradients of two batch sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple

from gradwatch.errors import SettingsError


class NoiseScale(NamedTuple):
    """Estimates of ‖G‖² (`signal`) and of tr Σ (`noise`) from one step; unbiased, so that either may be negative by chance."""

    signal: float
    noise: float

    @property
    def value(self) -> float:
        """B in examples, NaN where it is not defined: see `why_undefined`."""
        return self.noise / self.signal if not self.why_undefined() else nan

    def why_undefined(self) -> str:
        """Why these estimates make no noise scale; empty where they do."""
        if not (isfinite(self.signal) and isfinite(self.noise)):
            return "a gradient's norm is not finite"
        if self.signal <= 0:
            return "no gradient is left where the noise is taken away: average over more steps, or use larger batches"
        if self.noise < 0:
            return "the smaller batches' gradients are no longer than the whole one's: average over more steps"
        return ""


def noise_scale(small_square: float, small_batch: float, big_square: float, big_batch: float) -> NoiseScale:
    """‖G‖² = (B·‖g_B‖² − b·‖g_b‖²)/(B − b) and tr Σ = (‖g_b‖² − ‖g_B‖²)/(1/b − 1/B), b the smaller batch size, B the bigger.

    `small_square` is ‖g_b‖², the mean over the small batches where there are several, of the gradient of their *mean* loss; batch
    sizes are in examples (sequences, or tokens), and B comes out in the same. NaN where a square is NaN or infinite. Raises
    SettingsError where 0 < b < B does not hold.
    """
    if not 0 < small_batch < big_batch:
        raise SettingsError(f"batch sizes {small_batch:g} and {big_batch:g}: the first must be above 0 and smaller than the second")
    if not (isfinite(small_square) and isfinite(big_square)):
        return NoiseScale(nan, nan)
    signal = (big_batch * big_square - small_batch * small_square) / (big_batch - small_batch)
    return NoiseScale(signal, (small_square - big_square) / (1 / small_batch - 1 / big_batch))


def noise_scale_of_parts(part_squares: Sequence[float], whole_square: float, batch: float) -> NoiseScale:
    """The same from N equal parts of one batch, whose gradients, as they were added up, make the batch's.

    Parts are micro-batches, processes, or single sequences; `part_squares` are the squared norms of what each added to the whole
    (1/N of the gradient of its mean loss) and `batch` is the whole's size. Where parts differ in size it is an approximation. NaN
    with fewer than 2 parts.
    """
    parts = len(part_squares)
    if parts < 2:
        return NoiseScale(nan, nan)
    return noise_scale(parts * sum(part_squares), batch / parts, whole_square, batch)


class NoiseScaleAverage:
    """Averages ‖G‖² and tr Σ over steps, each on its own: their ratio in one step is biased and wild.

    Exponential averages with weight `decay` on the past, without the pull towards 0 of the first steps. A step that is not finite
    is left out. Raises SettingsError where `decay` is not in [0, 1).
    """

    def __init__(self, decay: float = 0.95) -> None:
        if not 0 <= decay < 1:
            raise SettingsError(f"decay={decay}: must be at least 0 and below 1, such as 0.95")
        self._decay = decay
        self._signal = self._noise = self._weight = 0.0

    def update(self, step: NoiseScale) -> NoiseScale:
        """Take in one step's estimates; the averages so far."""
        if isfinite(step.signal) and isfinite(step.noise):
            self._signal = self._decay * self._signal + (1 - self._decay) * step.signal
            self._noise = self._decay * self._noise + (1 - self._decay) * step.noise
            self._weight = self._decay * self._weight + 1 - self._decay
        return self.current

    @property
    def current(self) -> NoiseScale:
        """The averages so far, NaN before the first step."""
        return NoiseScale(self._signal / self._weight, self._noise / self._weight) if self._weight else NoiseScale(nan, nan)
