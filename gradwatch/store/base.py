"""The `Store` protocol: what every engine offers, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from gradwatch.schema import Block, Finding, RunInfo, Sample, Series, StoredFinding


class Curve(NamedTuple):
    """One series as it is read: the last write of each step, ascending by step; all columns have one length."""

    series: Series
    steps: list[int]
    values: list[float]
    wall_times: list[float]


class WatchState(msgspec.Struct, frozen=True):
    """What the watcher needs to go on: the last sequence number that it covered, and its detectors' states."""

    sequence: int = 0
    detectors: dict[str, bytes] = {}


class RunBook(Protocol):
    """Which runs there are, how far each was judged, and what was found."""

    def put_run(self, run: RunInfo) -> None:
        """Create the run, or replace what is known of it."""

    def runs(self, project: str | None = None) -> list[RunInfo]:
        """All runs, the newest first."""

    def put_watch(self, run: str, state: WatchState, findings: Sequence[Finding]) -> None:
        """Commit detector state and the findings it led to together.

        A known fingerprint is updated and keeps its life cycle, except that a closed finding becomes resolved.
        """

    def watch(self, run: str) -> WatchState:
        """What `put_watch` committed last, or the empty state."""

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""


class PointLog(Protocol):
    """What each run logged."""

    def append(self, run: str, points: Block | Iterable[Block], samples: Sequence[Sample] = (), batch_id: str | None = None) -> int:
        """Durably add points and samples in one transaction; return the run's last sequence number.

        A batch id that was committed before adds nothing: a retry is free.
        """

    def replay(self, run: str, after: int = 0, size: int = 50_000) -> Iterator[tuple[int, Block]]:
        """The run's points in sequence order, rewrites included, as (last sequence number, block of at most `size`)."""

    def curves(self, run: str, metrics: Iterable[str] | None = None) -> list[Curve]:
        """The run's series (those of the named metrics, or all), each with the last write of every step."""

    def samples(self, run: str, step: int | None = None, role: str | None = None) -> list[Sample]:
        """The run's samples, by step and in the order in which they came."""


class Store(RunBook, PointLog, Protocol):
    """Keeps runs. A run is created by its first `put_run`; whatever else names an unknown run is refused (StoreError)."""

    def close(self) -> None:
        """Release every resource; a second call does nothing."""
