"""The step worth keeping: best by the held-out metric, else by reward, smoothed, and never one with a non-finite value."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from gradwatch.metrics import metric
from gradwatch.schema import BestStep, Series

HELD_OUT = tuple("score reward accuracy success_rate pass_rate f1 map bleu rouge wer cer error perplexity loss".split())
"""Held-out metrics in the order in which they are preferred: what the task is judged by comes before the loss."""
EARNINGS = ("score", "reward", "success_rate")
MIN_EVALUATIONS = 3
MIN_REWARDS = 10


class Measured(NamedTuple):
    """One series by ascending step."""

    series: Series
    steps: Sequence[int]
    values: Sequence[float]


def best_step(curves: Iterable[Measured]) -> BestStep | None:
    """The best step of a run's newest attempt, or None where nothing says which step is better (no such metric, or a constant one).

    A step is as good as its own value or the running median around it, whichever is worse: neither a lucky value in bad company
    nor a bad one in good company wins. Of equals the better value wins, then the later step.
    A step is vetoed where a loss, gradient norm or the metric itself was non-finite since the metric's last value.
    """
    curves = list(curves)
    newest = max((one.series.attempt for one in curves), default=1)
    current = [one for one in curves if one.series.attempt == newest]
    chosen = (
        _preferred(current, "eval", HELD_OUT, MIN_EVALUATIONS)
        or _preferred(current, "eval", HELD_OUT, MIN_EVALUATIONS, whole=False)
        or _rewards(current)
    )
    return _best_of(chosen, _nonfinite_steps([chosen, *current])) if chosen is not None else None


def smoothed(values: Sequence[float], width: int) -> Sequence[float]:
    """The centred running median of `width` (odd) values; at the ends the first and last whole window is taken."""
    last = max(0, len(values) - width)
    starts = (min(max(0, at - width // 2), last) for at in range(len(values)))
    return array("d", (median(values[start : start + width]) for start in starts))


def _rewards(curves: Sequence[Measured]) -> Measured | None:
    return _preferred(curves, "rollout", EARNINGS, MIN_REWARDS) or _preferred(curves, "train", EARNINGS, MIN_REWARDS)


def _preferred(curves: Sequence[Measured], stream: str, names: Sequence[str], at_least: int, whole: bool = True) -> Measured | None:
    """The series that speaks best for a run; with `whole` one of no single role (or data set)."""
    fit = [one for one in curves if one.series.stream == stream and one.series.metric in names and _speaks(one.series, whole)]
    fit = [one for one in fit if sum(map(math.isfinite, one.values)) >= at_least]
    return min(
        fit, key=lambda one: (names.index(one.series.metric), one.series.stat != "mean", len(one.series.source_key)), default=None
    )


def _speaks(series: Series, whole: bool) -> bool:
    return not (whole and (series.role or series.agent)) and series.stat.partition("@")[0] in ("", "mean")


def _nonfinite_steps(curves: Sequence[Measured]) -> list[int]:
    """Steps with a non-finite value of the first series, or of one that training depends on."""
    watched = ("loss", "policy_loss", "grad_norm")
    return sorted(
        step
        for at, one in enumerate(curves)
        if not at or one.series.metric in watched
        for step, value in zip(one.steps, one.values, strict=True)
        if not math.isfinite(value)
    )


def _best_of(curve: Measured, bad: Sequence[int]) -> BestStep | None:
    known = metric(curve.series.metric)
    sign = -1.0 if known is not None and known.better == "min" else 1.0
    steps, values = array("q"), array("d")
    for step, value in zip(curve.steps, curve.values, strict=True):
        if math.isfinite(value):
            steps.append(step)
            values.append(sign * value)
    width = 3 if curve.series.stream == "eval" else min(15, max(5, len(values) // 20)) | 1
    best, equal, left_out = _highest(steps, values, smoothed(values, width), bad)
    if best is None or min(values) == max(values):
        return None
    _, value, step = best
    name = curve.series.source_key or curve.series.metric
    return BestStep(step, name, sign * value, _reason(curve, width, left_out, equal, step))


_Rated = tuple[float, float, int]


def _highest(
    steps: Sequence[int], values: Sequence[float], levels: Sequence[float], bad: Sequence[int]
) -> tuple[_Rated | None, int, int]:
    """The best (rating, value, step) of those not vetoed, how many were equally good, and how many were vetoed."""
    best: _Rated | None = None
    equal = vetoed = 0
    previous: float = -math.inf
    for step, value, level in zip(steps, values, levels, strict=True):
        if bisect_right(bad, previous) != bisect_right(bad, step):  # something non-finite since the value before
            vetoed += 1
        else:
            rated = (min(level, value), value, step)
            equal = equal + 1 if best is not None and rated[:2] == best[:2] else 1 if best is None or rated > best else equal
            best = rated if best is None else max(best, rated)
        previous = step
    return best, equal, vetoed


def _reason(curve: Measured, width: int, left_out: int, equal: int, step: int) -> str:
    kind = "held-out" if curve.series.stream == "eval" else "training"
    text = f"best of {len(curve.values)} values of {kind} {curve.series.source_key or curve.series.metric}, smoothed over {width}"
    if equal > 1:
        text += f"; the latest of {equal} equally good ones"
    if left_out:
        text += f"; {left_out} value{'s' if left_out > 1 else ''} that followed a non-finite loss or gradient left out"
    return text if step != curve.steps[-1] else f"{text}; it is the last one"
