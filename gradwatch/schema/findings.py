"""What was found, and what a training loop is advised to do about it."""

from __future__ import annotations

from typing import Any

import msgspec

from gradwatch.schema.points import NO_RANK

SEVERITIES = ("info", "warning", "critical")
"""From the mildest to the gravest."""

STOP, SKIP_STEP, ROLLBACK = "stop", "skip_step", "rollback"


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


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What a training loop should do now, and why: `stop`, `skip_step`, or `rollback` to the checkpoint `uri` of `step`.

    Nothing is done by gradwatch itself: the loop asks (`run.advice()`) and decides.
    """

    action: str
    reason: str
    finding: str = ""
    step: int | None = None
    uri: str = ""
