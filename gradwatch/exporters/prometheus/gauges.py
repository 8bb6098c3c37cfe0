"""Which series of a run becomes which gauge of a role. Pure.

Of the series that measure the same, one speaks for its role: the training stream before rollouts (evaluations never), the whole
model (a module's own series never), the mean where several statistics were logged, the role itself before one of its agents, all
ranks together before a single one, and else the first that came. A role of which only agents log is shown by its first agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gradwatch.schema import NO_RANK, Point, Series

STREAMS = ("train", "rollout")


class Gauge(NamedTuple):
    """A gauge, the metrics that fill it (the first that there is, each with its sign) and the statistics, the best one first."""

    name: str
    meaning: str
    metrics: tuple[tuple[str, float], ...]
    stats: tuple[str, ...] = ("", "mean")


GAUGES: tuple[Gauge, ...] = (
    Gauge("gradwatch_grad_norm", "L2 norm of the gradient before clipping, last logged", (("grad_norm", 1.0),)),
    Gauge("gradwatch_grad_share_ratio", "Share of a role in the gradient; may be negative, last logged", (("grad_share", 1.0),)),
    Gauge("gradwatch_perplexity", "Perplexity in training, last logged", (("perplexity", 1.0),)),
    Gauge("gradwatch_entropy_nats", "Mean policy entropy, last logged", (("entropy", 1.0), ("negative_entropy", -1.0))),
    Gauge("gradwatch_reward_mean", "Mean reward, last logged", (("reward", 1.0),), ("mean", "")),
    Gauge("gradwatch_reward_std", "Standard deviation of the reward, last logged", (("reward", 1.0),), ("std",)),
    Gauge("gradwatch_inflation_ratio", "How much a global baseline inflates a role, last logged", (("inflation_ratio", 1.0),)),
)

_OF_METRIC: dict[str, list[Gauge]] = {}
for _gauge in GAUGES:
    for _metric, _ in _gauge.metrics:
        _OF_METRIC.setdefault(_metric, []).append(_gauge)

Rank = tuple[int, int, int, bool, int]
Values = dict[str, dict[str, float]]
"""Of each gauge, the value of each role."""


def rank_of(gauge: Gauge, series: Series) -> Rank | None:
    """How well a series stands for a gauge of its role, lower is better; None where it does not."""
    if series.stat not in gauge.stats or series.stream not in STREAMS or series.scope:
        return None
    metric = next(at for at, (name, _) in enumerate(gauge.metrics) if name == series.metric)
    place = (metric, STREAMS.index(series.stream), gauge.stats.index(series.stat))
    return (*place, bool(series.agent), -1 if series.rank == NO_RANK else series.rank)


def exported(points: Iterable[Point]) -> Values:
    """The gauges' values of each role, NaN and infinities as they are; a gauge that nothing fills is left out."""
    best: dict[tuple[str, str], Rank] = {}
    values: Values = {}
    for point in points:
        # Most series are of metrics that no gauge shows.
        for gauge in _OF_METRIC.get(point.series.metric, ()):
            at = (gauge.name, point.series.role)
            rank = rank_of(gauge, point.series)
            if rank is not None and (at not in best or rank < best[at]):
                best[at] = rank
                values.setdefault(gauge.name, {})[point.series.role] = point.value * dict(gauge.metrics)[point.series.metric]
    return values
