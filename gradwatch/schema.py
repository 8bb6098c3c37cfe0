"""The records that cross between the parts of gradwatch.

A *series* is one measured quantity of one role, agent, policy, module group and rank in one stream of one attempt. Points
travel in a `Block`, a columnar batch on the standard library's arrays, so that a training machine needs no numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

FILTERED = 1
"""Point flag: the framework logged a filtered value (Hugging Face's `logging_nan_inf_filter`), not the raw one."""
FROM_NULL = 2
"""Point flag: the log holds a null where its writer had a non-finite value; NaN stands in for it."""

NO_RANK = -1

SEVERITIES = ("info", "warning", "critical")
"""From the mildest to the gravest."""


class Series(msgspec.Struct, frozen=True):
    """What a point measures. Empty axes do not apply; `source_key` is the key as its framework wrote it."""

    metric: str
    source_key: str = ""
    stream: str = "train"
    attempt: int = 1
    stat: str = ""
    role: str = ""
    agent: str = ""
    policy: str = ""
    scope: str = ""
    rank: int = NO_RANK


class Point(msgspec.Struct, frozen=True):
    """One value of one series. `wall_time` is in Unix seconds, NaN where unknown; `value` keeps NaN and infinities."""

    series: Series
    step: int
    value: float
    wall_time: float = float("nan")
    flags: int = 0


class Block:
    """A columnar batch of points in the order in which they were logged.

    `series` is the table of the block's series; row i is the point (series[index[i]], step[i], wall_time[i], value[i], flags[i]).
    """

    __slots__ = ("_of_series", "flags", "index", "series", "step", "value", "wall_time")

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._of_series: dict[Series, int] = {}
        self.index = array("i")
        self.step = array("q")
        self.wall_time = array("d")
        self.value = array("d")
        self.flags = array("B")

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Point]:
        for i, s, v, w, f in zip(self.index, self.step, self.value, self.wall_time, self.flags, strict=True):
            yield Point(self.series[i], s, v, w, f)

    def series_id(self, series: Series) -> int:
        """The position of `series` in this block's table, added if new."""
        known = self._of_series.get(series)
        if known is None:
            known = self._of_series[series] = len(self.series)
            self.series.append(series)
        return known

    def add(self, series: Series, step: int, value: float, wall_time: float = float("nan"), flags: int = 0) -> None:
        """Append one point."""
        self.add_id(self.series_id(series), step, value, wall_time, flags)

    def add_id(self, series_id: int, step: int, value: float, wall_time: float, flags: int = 0) -> None:
        """Append one point of a series that `series_id` has named; the fast path."""
        self.index.append(series_id)
        self.step.append(step)
        self.wall_time.append(wall_time)
        self.value.append(value)
        self.flags.append(flags)


class RunInfo(msgspec.Struct, frozen=True):
    """A run: its identity, where it came from and what it declared. `created` is in Unix seconds."""

    id: str
    name: str
    project: str = "default"
    source: str = ""
    format: str = ""
    rows: int = 0
    created: float = 0.0
    config: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()


class Sample(msgspec.Struct, frozen=True):
    """One rollout's text and numbers: what a role was asked and answered at a step, and what it earned."""

    step: int
    role: str = ""
    agent: str = ""
    turn: int = 0
    group: str = ""
    prompt: str = ""
    output: str = ""
    rewards: dict[str, float] = {}
    advantage: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    format_valid: bool | None = None
    influence: float | None = None
    flags: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector saw: what, where, since when, against which baseline, and what to do about it.

    `episode` numbers the findings of one kind, metric, role and scope within an attempt: an episode is extended as it
    goes on, and a later one is a new finding. `closed` says that the episode has ended.
    """

    kind: str
    detector: str
    severity: str
    metric: str
    start_step: int
    end_step: int
    message: str
    suggestion: str
    source_key: str = ""
    stat: str = ""
    rank: int = NO_RANK
    stream: str = "train"
    attempt: int = 1
    role: str = ""
    agent: str = ""
    policy: str = ""
    scope: str = ""
    episode: int = 1
    closed: bool = False
    subject: str = ""
    evidence: dict[str, Any] = {}

    def fingerprint(self) -> str:
        """The identity of the episode within its run; a finding on several series at once goes by its `subject`."""
        one = (self.stream, self.source_key or self.metric, self.stat, self.agent, self.scope, self.rank)
        about = self.subject or "\x1f".join(map(str, one))
        axes = (self.attempt, self.kind, about, self.role, self.policy, self.episode)
        return "\x1f".join(map(str, axes))


class StoredFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as the store keeps it, with its life cycle: open → acknowledged → resolved."""

    id: str
    run: str
    finding: Finding
    status: str = "open"
    created: float = 0.0
    updated: float = 0.0
    silenced_until: float | None = None
    false_alarm: bool = False


class BestStep(msgspec.Struct, frozen=True):
    """The step worth keeping and why."""

    step: int
    metric: str
    value: float
    reason: str
