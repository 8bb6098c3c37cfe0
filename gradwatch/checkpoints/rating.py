"""How good each step of one metric was: its own value or the running median around it, whichever is worse."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gradwatch.metrics import metric
from gradwatch.schema import BestStep, Checkpoint, Series


class Measured(NamedTuple):
    """One series by ascending step."""

    series: Series
    steps: Sequence[int]
    values: Sequence[float]


def smoothed(values: Sequence[float], width: int) -> Sequence[float]:
    """The centred running median of `width` (odd) values; at the ends the first and last whole window is taken."""
    last = max(0, len(values) - width)
    starts = (min(max(0, at - width // 2), last) for at in range(len(values)))
    return array("d", (median(values[start : start + width]) for start in starts))


class Rated(NamedTuple):
    """A metric's finite values with their ratings, higher = better, and the steps at which something was non-finite."""

    curve: Measured
    sign: float
    width: int
    steps: Sequence[int]
    values: Sequence[float]
    levels: Sequence[float]
    bad: Sequence[int]

    @classmethod
    def of(cls, curve: Measured, bad: Sequence[int], mode: str | None = None) -> Rated:
        """Rate a curve; `mode` (max, min) says which direction is better where the metric does not."""
        known = metric(curve.series.metric)
        better = mode or (known.better if known is not None else "max")
        sign = -1.0 if better == "min" else 1.0
        steps, values = array("q"), array("d")
        for step, value in zip(curve.steps, curve.values, strict=True):
            if math.isfinite(value):
                steps.append(step)
                values.append(sign * value)
        width = 3 if curve.series.stream == "eval" else min(15, max(5, len(values) // 20)) | 1
        return cls(curve, sign, width, steps, values, smoothed(values, width), bad)

    def best(self) -> BestStep | None:
        """The best of all values, or None where none is left or all are equal."""
        best: tuple[float, float, int] | None = None
        equal = left_out = 0
        for at in self.steps:
            rated = self.at(at)
            if rated is None:
                left_out += 1
            else:
                equal = equal + 1 if best is not None and rated[:2] == best[:2] else 1 if best is None or rated > best else equal
                best = rated if best is None else max(best, rated)
        if best is None or min(self.values) == max(self.values):
            return None
        _, value, step = best
        name = self.curve.series.source_key or self.curve.series.metric
        return BestStep(step, name, self.sign * value, _reason(self.curve, self.width, left_out, equal, step))

    def at(self, step: int) -> tuple[float, float, int] | None:
        """(rating, value, measured step) of weights saved at a step: those of the last value before or at it.

        None where there is no such value, or where something was non-finite between the value before that and the step.
        """
        at = bisect_right(self.steps, step) - 1
        if at < 0:
            return None
        previous = self.steps[at - 1] if at else -math.inf
        if bisect_right(self.bad, previous) != bisect_right(self.bad, step):
            return None
        return min(self.levels[at], self.values[at]), self.values[at], self.steps[at]


class Kept(NamedTuple):
    """The checkpoints of the step worth keeping (one a policy), the metric's value for it, where that was measured, and why."""

    checkpoints: tuple[Checkpoint, ...]
    value: float
    measured: int
    reason: str


def best_checkpoint(rated: Rated, checkpoints: Sequence[Checkpoint]) -> Kept | None:
    """What was saved at the best rated step of the newest attempt, of equals the latest; None where none is left."""
    newest = rated.curve.series.attempt
    own = [one for one in checkpoints if one.attempt == newest]
    saved = {one.step for one in own}
    fit = [(found, step) for step in saved if (found := rated.at(step)) is not None]
    if not fit:
        return None
    (_, value, measured), best = max(fit, key=lambda one: (one[0][:2], one[1]))
    name = rated.curve.series.source_key or rated.curve.series.metric
    left_out = len(saved) - len(fit)
    reason = f"best of {len(saved)} saved step{'s' if len(saved) > 1 else ''} by {name} at or before its step"
    if left_out:
        reason += f"; {left_out} left out, for want of a value or since something was non-finite before"
    return Kept(tuple(one for one in own if one.step == best), rated.sign * value, measured, reason)


def _reason(curve: Measured, width: int, left_out: int, equal: int, step: int) -> str:
    kind = "held-out" if curve.series.stream == "eval" else "training"
    text = f"best of {len(curve.values)} values of {kind} {curve.series.source_key or curve.series.metric}, smoothed over {width}"
    if equal > 1:
        text += f"; the latest of {equal} equally good ones"
    if left_out:
        text += f"; {left_out} value{'s' if left_out > 1 else ''} that followed a non-finite loss or gradient left out"
    return text if step != curve.steps[-1] else f"{text}; it is the last one"
