"""What a scrape reads of one run, and what of it is exported: active runs, findings that call for somebody, at most 50 roles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradwatch.exporters.prometheus.gauges import Values, exported
from gradwatch.schema import RUNNING, Point, RunState, StoredFinding

AFTER_END_SECONDS = 600.0
"""A run stays for this long after its end, so that a NaN in its last steps is scraped and told."""
LOST_SECONDS = 86_400.0
"""A run that never said that it ended (its machine was lost) is left out after a day without an update."""
SHOWN_SECONDS = 60.0
"""A finding is exported for at least this long: four scrapes at Prometheus' usual interval of 15 s."""
MAX_ROLES = 50
OTHER = "other"
"""The role of findings and non-finite values of further roles; their gauges are left out, since no one value speaks for them."""
WHOLE = ""
"""The role of what concerns the run as a whole."""


class Newest(NamedTuple):
    """What the newest value of every series of a run comes to. Each maps roles, in the order in which they first came."""

    gauges: Values
    steps: dict[str, float]
    wall_times: dict[str, float]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Newest:
        """The values that are exported, and of each role its last step and its last known wall time."""
        steps: dict[str, float] = {}
        wall_times: dict[str, float] = {}
        for point in points:
            role = point.series.role
            if point.step > steps.get(role, -math.inf):
                steps[role] = point.step
            # A wall time that is not known is NaN, which no comparison lets through.
            if point.wall_time > wall_times.get(role, -math.inf):
                wall_times[role] = point.wall_time
        return cls(exported(points), steps, wall_times)


class Reading(NamedTuple):
    """One run at one scrape. `roles` are those that it is exported with."""

    state: RunState
    newest: Newest
    findings: list[StoredFinding]
    nonfinite: Mapping[str, int]
    roles: tuple[str, ...]

    @classmethod
    def of(cls, state: RunState, newest: Newest, findings: list[StoredFinding], nonfinite: Mapping[str, int]) -> Reading:
        """The reading, its roles found out: declared ones first, then as they first came, at most 50, and the run as a whole."""
        names = dict.fromkeys((*state.info.roles, *newest.steps, *(one.finding.role for one in findings), *nonfinite))
        roles = (WHOLE, *[name for name in names if name != WHOLE][:MAX_ROLES])
        return cls(state, newest, findings, nonfinite, roles)

    @property
    def steps(self) -> dict[str, float]:
        """The last step of the run and of each role."""
        last = self.state.last_step
        return self.newest.steps if last is None else self.newest.steps | {WHOLE: float(last)}

    @property
    def updates(self) -> dict[str, float]:
        """When the run and each role logged last, Unix seconds: the run by the collector's clock, a role by its own machine's."""
        last = self.state.last_update
        return self.newest.wall_times | {WHOLE: last} if last else self.newest.wall_times

    @property
    def labels(self) -> tuple[str, str]:
        """Project and run."""
        return self.state.info.project, self.state.info.id

    def listed(self, role: str) -> str:
        """The role, or `other` for one beyond the cap."""
        return role if role in self.roles else OTHER


def is_active(state: RunState, now: float) -> bool:
    """Whether the run is exported: it is running, or ended a short while ago."""
    seen = max(state.last_update, state.info.created)
    return now - seen <= (LOST_SECONDS if state.status == RUNNING else AFTER_END_SECONDS)


def calls(stored: StoredFinding, attempt: int, now: float) -> bool:
    """Whether the finding is active: its trouble goes on, in the newest attempt, or it is new.

    Never where somebody has silenced it or called it a false alarm. A new one stays for SHOWN_SECONDS even where its trouble is
    over: a spike of a single step would else be gone before the next scrape.
    """
    silent = stored.silenced_until is not None and now < stored.silenced_until
    over = stored.finding.closed or stored.status == "resolved" or stored.finding.attempt != attempt
    new = now - stored.created < SHOWN_SECONDS
    return (new or not over) and not (stored.false_alarm or silent)
