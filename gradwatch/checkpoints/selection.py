"""The step worth keeping: best by the held-out metric, else by reward, smoothed, and never one with a non-finite value."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gradwatch.checkpoints.rating import Kept, Measured, Rated, best_checkpoint
from gradwatch.errors import GradwatchError
from gradwatch.schema import BestStep, Checkpoint, Series, Span, Trace

HELD_OUT = tuple("score reward accuracy success_rate pass_rate f1 map bleu rouge wer cer error perplexity loss".split())
"""Held-out metrics in the order in which they are preferred: what the task is judged by comes before the loss."""
EARNINGS = ("score", "reward", "success_rate")
MIN_EVALUATIONS = 3
MIN_REWARDS = 10
MAX_JUDGED = 2000
"""Series that the best step is judged by; where there are more, those of single modules or roles are left out."""
_JUDGED_BY = frozenset({*HELD_OUT, *EARNINGS, "policy_loss", "grad_norm"})


class Keeper(Protocol):
    """What a run is chosen from: a store, or a collector. Curves are read one by one: a run may be large."""

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step."""

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series, one by one."""


class Saver(Keeper, Protocol):
    """A keeper that knows what was saved as well."""

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints."""


class Wish(NamedTuple):
    """What a user asks for instead of the metric that speaks best: a metric's name or key, and which direction is better."""

    metric: str | None = None
    mode: str | None = None


NO_WISH = Wish()


class Pick(NamedTuple):
    """What is worth keeping of a run: a step, and of what was saved the checkpoints of one step; None where nothing tells."""

    best: BestStep | None
    kept: Kept | None
    rated: Rated | None


def pick_of_run(saver: Saver, run: str, wish: Wish = NO_WISH) -> Pick:
    """The best step of a run's newest attempt, and the best that was saved. GradwatchError where it has no such metric."""
    rated = rate(judged_curves(saver, run, wish), wish)
    if rated is None:
        return Pick(None, None, None)
    best = rated.best()
    return Pick(best, None if best is None else best_checkpoint(rated, saver.checkpoints(run)), rated)


def best_of_run(keeper: Keeper, run: str, wish: Wish = NO_WISH) -> BestStep | None:
    """The best step of a kept run's newest attempt; see `best_step`. GradwatchError where it has no such metric."""
    return best_step(judged_curves(keeper, run, wish), wish)


def judged_curves(keeper: Keeper, run: str, wish: Wish = NO_WISH) -> list[Measured]:
    """What a run's best step is chosen by, or vetoed."""
    spans = keeper.spans(run)
    newest = max((one.series.attempt for one in spans), default=1)
    current = [one.series for one in spans if one.series.attempt == newest]
    judged = [one for one in current if one.metric in _JUDGED_BY or wish.metric in (one.metric, one.source_key)]
    if len(judged) > MAX_JUDGED:
        judged = [one for one in judged if not (one.role or one.agent or one.scope)][:MAX_JUDGED]
    wanted = frozenset(judged)
    return [Measured(*one) for one in keeper.traces(run, wanted)]


def best_step(curves: Iterable[Measured], wish: Wish = NO_WISH) -> BestStep | None:
    """The best step of a run's newest attempt, or None where nothing says which step is better (no such metric, or a constant one).

    A step is as good as its own value or the running median around it, whichever is worse: neither a lucky value in bad company
    nor a bad one in good company wins. Of equals the better value wins, then the later step.
    A step is vetoed where a loss, gradient norm or the metric itself was non-finite since the metric's last value.
    """
    rated = rate(curves, wish)
    return None if rated is None else rated.best()


def rate(curves: Iterable[Measured], wish: Wish = NO_WISH) -> Rated | None:
    """The rating of every value of the metric that speaks best for a run, or of the one asked for; None where there is none."""
    curves = list(curves)
    newest = max((one.series.attempt for one in curves), default=1)
    current = [one for one in curves if one.series.attempt == newest]
    chosen = _asked_for(current, wish.metric) if wish.metric is not None else _spokesman(current)
    return Rated.of(chosen, _nonfinite_steps([chosen, *current]), wish.mode) if chosen is not None else None


def _spokesman(curves: Sequence[Measured]) -> Measured | None:
    return (
        _preferred(curves, "eval", HELD_OUT, MIN_EVALUATIONS)
        or _preferred(curves, "eval", HELD_OUT, MIN_EVALUATIONS, whole=False)
        or _rewards(curves)
    )


def _asked_for(curves: Sequence[Measured], name: str) -> Measured:
    """The series of that key, else of that metric; held-out values and whole policies come first."""
    fit = [one for one in curves if name in (one.series.source_key, one.series.metric)]
    if not fit:
        known = ", ".join(sorted({one.series.source_key or one.series.metric for one in curves})[:8]) or "none"
        raise GradwatchError(f"no metric {name!r} in the run's newest attempt; name one by its key (there are {known})")
    return min(
        fit,
        key=lambda one: (
            one.series.source_key != name,
            one.series.stream != "eval",
            bool(one.series.role),
            one.series.stat not in ("", "mean"),
        ),
    )


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
