"""The `Store` protocol: what every engine offers, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from gradwatch.schema import (
    Attempt,
    Block,
    Checkpoint,
    Curve,
    Event,
    Finding,
    Point,
    RunInfo,
    Sample,
    Selection,
    StoredFinding,
)
from gradwatch.wire import OpenRun

ALL = Selection()


class Append(NamedTuple):
    """What one append adds to a run; see `PointLog.append`."""

    run: str
    points: Block
    samples: Sequence[Sample] = ()
    batch_id: str | None = None


class Appended(NamedTuple):
    """The run's last sequence number then, and whether the batch id had been committed before (nothing was added)."""

    sequence: int
    duplicate: bool = False


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


class Journal(Protocol):
    """The attempts of each run, and what happened in them beside points."""

    def open_attempt(self, request: OpenRun) -> Attempt:
        """The attempt of a process of an existing run, joined or opened as `OpenRun` says; the same process, the same attempt."""

    def attempt_of(self, run: str, process: str) -> int:
        """The attempt that the process has opened; the newest one for "" or an unknown process, 1 where there is none."""

    def end_process(self, run: str, process: str, status: str) -> None:
        """The process has ended; its attempt ends with its last process, as the gravest of their ends."""

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts, the first one first."""

    def put_checkpoints(self, run: str, checkpoints: Sequence[Checkpoint]) -> None:
        """Keep checkpoints; the same attempt, step, policy and uri again replaces what was known of it."""

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""

    def put_events(self, run: str, events: Sequence[Event]) -> None:
        """Keep events; one that is there already (all fields equal) is not repeated."""

    def events(self, run: str) -> list[Event]:
        """What happened to the run, by wall time."""


class PointLog(Protocol):
    """What each run logged."""

    def append(self, run: str, points: Block | Iterable[Block], samples: Sequence[Sample] = (), batch_id: str | None = None) -> int:
        """Durably add points and samples in one transaction; return the run's last sequence number.

        A batch id that was committed before adds nothing: a retry is free.
        """

    def append_group(self, appends: Sequence[Append]) -> list[Appended]:
        """Durably add many appends, of any runs, in their order and in one transaction.

        One whose batch id was committed before, or came earlier in the group, adds nothing.
        """

    def replay(self, run: str, after: int = 0, size: int = 50_000) -> Iterator[tuple[int, Block]]:
        """The run's points in sequence order, rewrites included, as (last sequence number, block of at most `size`)."""

    def latest(self, run: str, attempt: int) -> list[Point]:
        """The last write of the highest step of every series of an attempt."""

    def curves(self, run: str, selection: Selection = ALL) -> list[Curve]:
        """The selected series, in the order in which they first came, each with the last write of every step."""

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The run's samples, by step and in the order in which they came; the first `limit`."""

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""


class Store(RunBook, Journal, PointLog, Protocol):
    """Keeps runs. A run is created by its first `put_run`; whatever else names an unknown run is refused (StoreError)."""

    def close(self) -> None:
        """Release every resource; a second call does nothing."""
