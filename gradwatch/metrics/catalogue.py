"""Every metric that gradwatch knows: its unit, the direction that is better, its meaning, and its names elsewhere."""

from __future__ import annotations

from functools import cache

from gradwatch.metrics.metric import Metric
from gradwatch.metrics.optimisation import GRADIENTS, LOSSES, POLICY
from gradwatch.metrics.outcomes import PROGRESS, REWARDS, SCORES, TEXT

METRICS: tuple[Metric, ...] = (*GRADIENTS, *LOSSES, *REWARDS, *POLICY, *TEXT, *SCORES, *PROGRESS)


@cache
def by_alias() -> dict[str, Metric]:
    """Every name and alias, each to its metric."""
    table: dict[str, Metric] = {}
    for one in METRICS:
        for alias in (one.name, *one.aliases):
            table.setdefault(alias, one)
    return table


@cache
def metric(name: str) -> Metric | None:
    """The catalogue's entry for a metric name, None for a name of the user's own."""
    found = by_alias().get(name)
    return found if found is not None and found.name == name else None
