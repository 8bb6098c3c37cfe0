"""A run and its attempts, checkpoints and events."""

from __future__ import annotations

from typing import Any

import msgspec

RUNNING, FINISHED, INTERRUPTED, FAILED = STATUSES = ("running", "finished", "interrupted", "failed")
"""Of an attempt, from the mildest end to the gravest: an attempt ends as the gravest end of its processes."""


class RunInfo(msgspec.Struct, frozen=True):
    """A run: its identity, where it came from and what it declared.

    `created` is in Unix seconds. `roles` is the declared topology: what the user said of each role (`policy`, `agents` ...).
    """

    id: str
    name: str
    project: str = "default"
    source: str = ""
    format: str = ""
    rows: int = 0
    created: float = 0.0
    config: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    roles: dict[str, Any] = {}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a run: a resume, a restart after a crash or a requeue opens the next one. Times are Unix seconds."""

    run: str
    number: int
    status: str = RUNNING
    started: float = 0.0
    ended: float | None = None


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands: its newest attempt, how far it got, and by severity what was found and is no false alarm.

    `findings` counts what is open or acknowledged, `resolved` what is over. A run that was imported is finished. `sequence` counts
    the points committed so far: where it has not changed, no curve has. `last_update` is the Unix time of the last commit, 0
    where there was none.
    """

    info: RunInfo
    attempt: int = 1
    status: str = RUNNING
    last_step: int | None = None
    last_update: float = 0.0
    sequence: int = 0
    findings: dict[str, int] = {}
    resolved: dict[str, int] = {}

    @property
    def health(self) -> str:
        """The worst that was found, be it over or not: `critical`, `warning` or `healthy`."""
        return next((one for one in ("critical", "warning") if self.findings.get(one) or self.resolved.get(one)), "healthy")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Weights that the user saved. `metrics` are the values that the user gave for it; `wall_time` is in Unix seconds.

    `attempt` 0 stands for the attempt of the process that logs it.
    """

    step: int
    uri: str
    attempt: int = 0
    policy: str = ""
    metrics: dict[str, float] = {}
    wall_time: float = 0.0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a run beside its numbers: opened, resumed, interrupted, points dropped ...

    `attempt` 0 stands for the attempt of the process that reports it.
    """

    kind: str
    message: str
    attempt: int = 0
    step: int | None = None
    wall_time: float = 0.0
    facts: dict[str, Any] = {}


class BestStep(msgspec.Struct, frozen=True):
    """The step worth keeping and why."""

    step: int
    metric: str
    value: float
    reason: str
