"""What the exporter needs of a collector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gradwatch.schema import Point, RunState, StoredFinding


class Vitals(NamedTuple):
    """The collector's own figures. Those in `_total` never fall while it lives; a restart begins again at 0.

    `refused_requests_total` is by reason (`too_large`, `busy`, `unauthorised` ...) and `errors_total` by kind (`store`, `watcher`,
    `request` ...): few fixed words, each there from the start with 0, since a counter that first appears at 1 shows no increase.
    """

    started: float
    """Unix seconds."""
    points_total: int = 0
    """Points committed, without those of duplicate batches."""
    batches_total: int = 0
    """Batches committed, without duplicates."""
    duplicate_batches_total: int = 0
    refused_requests_total: Mapping[str, int] = {}
    commits_total: int = 0
    commit_seconds_total: float = 0.0
    queue_points: int = 0
    """Points received that wait for their commit."""
    queue_bytes: int = 0
    queue_limit_bytes: int = 0
    """Where requests are answered 429."""
    watch_lag_points: int = 0
    """Points committed that no detector has judged yet, of all runs."""
    watch_lag_seconds: float = 0.0
    """How long the oldest of them has waited."""
    errors_total: Mapping[str, int] = {}


class Source(Protocol):
    """Reads only; called by one scrape at a time, from a worker thread."""

    def states(self) -> list[RunState]:
        """Every run as it stands, the newest first."""

    def latest(self, run: str, attempt: int) -> list[Point]:
        """The last write of the highest step of every series of an attempt, series in the order in which they first came."""

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings, of all attempts."""

    def nonfinite(self, run: str) -> Mapping[str, int]:
        """How many NaN and infinite values were committed to the run since the collector started, by role ("": no role).

        A count never falls while the collector lives, and counts a value that was rewritten again; a duplicate batch adds nothing.
        After a restart it may begin at 0: Prometheus reads a fall of a counter as that.
        """

    def vitals(self) -> Vitals:
        """The collector's own figures now."""
