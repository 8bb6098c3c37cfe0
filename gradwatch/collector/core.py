"""The collector without HTTP: what a server, and a training process of its own, write to and ask."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future

from gradwatch.collector.committing import Committer
from gradwatch.collector.counts import Counts
from gradwatch.collector.limits import check_batch, check_open, check_series
from gradwatch.collector.listening import Listeners
from gradwatch.collector.questions import Questions
from gradwatch.collector.room import Room
from gradwatch.collector.watching import Watching
from gradwatch.collector.writing import IDLE_SECONDS, Submission, Writer
from gradwatch.exporters.prometheus.source import Vitals
from gradwatch.schema import Block, Point
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Detecting, Judge
from gradwatch.wire import Ack, Batch, Opened, OpenRun, unpack

ROOM_BYTES = 64 * 2**20
FULL = 0.9
"""Of the room: from there on the collector is not ready for more."""


class Collector(Questions):
    """Takes batches of any runs from any threads, commits them in groups, has them judged, and answers questions.

    `room` bounds the bytes that wait for the disk; `page` is the address of its page, when it has one. `judge` runs
    the detectors, on a thread of this process where none is given. Store and judge stay their owner's.
    """

    def __init__(
        self,
        store: LocalStore,
        *,
        room: int = ROOM_BYTES,
        page: str = "",
        judge: Judge | None = None,
        idle: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(store)
        self.room = Room(room)
        self.counts = Counts()
        self.listeners = Listeners()
        self.watching = Watching(store, judge or Detecting(), lambda: self.room.taken > 0)
        self.page = page
        self._committer = Committer(store, self.watching, self.listeners, self.counts)
        self._writer = Writer(self._committer.commit, store.checkpoint, idle)
        self._started = time.time()

    def start(self) -> None:
        """Begin; every run is judged on from where its watcher stopped."""
        self._writer.start()
        self.watching.start()

    def close(self) -> None:
        """Commit what waits, then stop; what is submitted from now on is refused."""
        self._writer.close()
        self.watching.close()

    def open(self, request: OpenRun) -> Opened:
        """Announce a process; create its run, or join it. RefusedError where the request forbids that."""
        check_open(request)
        return self._writer.call(lambda: self._committer.open(request)).result()

    def submit(self, run: str, batch: Batch, points: Block | None = None) -> Future[Ack]:
        """Queue a batch; its future has the ack when the batch is durable, or a RefusedError.

        `points` stand in for the batch's columns: somebody has decoded and checked them. Raises UnavailableError where there is no
        room, RefusedError for a bad batch.
        """
        if points is None:
            points = Block() if batch.columns is None else unpack(batch.columns)
            check_series(points.series)
        check_batch(batch)
        size = size_of(batch, points)
        self.room.take(size)
        future: Future[Ack] = Future()
        future.add_done_callback(lambda _: self.room.give(size))
        try:
            self._writer.put(Submission(run, batch, points, size, future))
        except BaseException:
            self.room.give(size)
            raise
        return future

    def latest(self, run: str, attempt: int) -> list[Point]:
        """The last write of the highest step of every series of an attempt, from memory once it was asked for."""
        self._store.attempt_of(run, "")
        memory = self._committer.memory_of(run)
        known = memory.newest(attempt)
        if known is not None:
            return known
        memory.begin(attempt)
        points = self._store.latest(run, attempt)
        memory.seed(attempt, points)
        return memory.newest(attempt) or points

    def nonfinite(self, run: str) -> Mapping[str, int]:
        """How many NaN and infinite values were committed to the run since the collector started, by role."""
        return self._committer.memory_of(run).nonfinite()

    def vitals(self) -> Vitals:
        """The collector's own figures now."""
        counts, lag = self.counts, self.watching.lag()
        errors = counts.errors
        return Vitals(
            started=self._started,
            points_total=counts.points,
            batches_total=counts.batches,
            duplicate_batches_total=counts.duplicates,
            refused_requests_total=counts.refused,
            commits_total=counts.commits,
            commit_seconds_total=counts.commit_seconds,
            queue_points=self._writer.waiting_points(),
            queue_bytes=self.room.taken,
            queue_limit_bytes=self.room.limit,
            watch_lag_points=lag.points,
            watch_lag_seconds=lag.seconds,
            errors_total=errors | {"store": self._writer.errors, "watcher": self.watching.errors},
        )

    def problems(self) -> list[str]:
        """Why the collector is not ready for batches; empty where it is."""
        found = []
        if not self._writer.alive:
            found.append("it is stopping")
        if self._writer.trouble:
            found.append(f"its last commit failed: {self._writer.trouble}")
        if not self.watching.alive:
            found.append("its watcher does not run")
        if self.room.taken > FULL * self.room.limit:
            found.append(f"{self.room.taken:,} of {self.room.limit:,} bytes wait for the disk")
        return found


def size_of(batch: Batch, points: Block) -> int:
    """About how many bytes the batch holds in memory."""
    row = 29
    texts = sum(len(one.prompt) + len(one.output) + 500 for one in batch.samples)
    return row * len(points) + texts + 500 * (len(points.series) + len(batch.events) + len(batch.checkpoints)) + 1000
