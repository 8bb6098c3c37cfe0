"""What one commit does: a group of batches of any runs becomes durable in one transaction, and each sender gets its ack."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from gradwatch.collector.advice import advise
from gradwatch.collector.counts import Counts
from gradwatch.collector.listening import Listeners
from gradwatch.collector.memory import RunMemory
from gradwatch.collector.opening import open_run
from gradwatch.collector.stamping import dated, is_time, placed, stamped
from gradwatch.collector.watching import Watching
from gradwatch.collector.writing import Failure, Submission
from gradwatch.errors import RefusedError, StoreError
from gradwatch.schema import Advice, Block, Checkpoint, StoredFinding
from gradwatch.store.base import Append, Appended
from gradwatch.store.local import LocalStore
from gradwatch.wire import Ack, Opened, OpenRun


class Prepared(NamedTuple):
    """A submission whose run is known, its points in their attempt."""

    submission: Submission
    attempt: int
    points: Block


class Committer:
    """Everything here runs on the writer's thread, so nothing but `memory` needs a lock."""

    def __init__(self, store: LocalStore, watching: Watching, listeners: Listeners, counts: Counts) -> None:
        self._store = store
        self._watching = watching
        self._listeners = listeners
        self._counts = counts
        self._attempts: dict[str, dict[str, int]] = {}
        self._checkpoints: dict[str, list[Checkpoint]] = {}
        self.memory: dict[str, RunMemory] = {}

    def open(self, request: OpenRun) -> Opened:
        """Create the request's run, or join it."""
        opened = open_run(self._store, request, time.time())
        self._attempts.pop(request.id, None)
        return opened

    def commit(self, group: Sequence[Submission]) -> list[Failure]:
        """Make the group durable and resolve its futures; an unknown run is refused and leaves the others alone.

        What is given back has its points in the store, and what goes with them could not be kept: a retry adds that alone.
        """
        prepared = [ready for one in group if (ready := self._prepared(one)) is not None]
        if not prepared:
            return []
        begun = time.perf_counter()
        appended = self._store.append_group(
            [
                Append(
                    one.submission.run,
                    one.points,
                    placed(one.submission.batch.samples, one.attempt),
                    one.submission.batch.id or None,
                )
                for one in prepared
            ]
        )
        noted = [self._noted(one, done) for one, done in zip(prepared, appended, strict=True)]
        self._counts.commits += 1
        self._counts.commit_seconds += time.perf_counter() - begun
        for one, done in zip(prepared, appended, strict=True):
            self._remember(one, done)
        for one, done, failure in zip(prepared, appended, noted, strict=True):
            if failure is None:
                one.submission.future.set_result(self._ack(one, done))
        return [failure for failure in noted if failure is not None]

    def _prepared(self, one: Submission) -> Prepared | None:
        try:
            attempt = self._attempt(one.run, one.batch.process)
            return Prepared(one, attempt, stamped(one.points, attempt))
        except StoreError:
            error = RefusedError(f"run {one.run!r} does not exist: open it with POST /api/v1/runs first", 404)
        except RefusedError as refused:
            error = refused
        one.future.set_exception(error)
        return None

    def _attempt(self, run: str, process: str) -> int:
        known = self._attempts.setdefault(run, {})
        if process not in known:
            known[process] = self._store.attempt_of(run, process)
        return known[process]

    def _noted(self, one: Prepared, done: Appended) -> Failure | None:
        """Keep what is not points; a failure concerns this batch alone, since the points of all are committed."""
        try:
            self._note(one, done, time.time())
        except (SQLAlchemyError, ValueError, TypeError, OverflowError) as error:
            return Failure(one.submission, error)
        return None

    def _note(self, one: Prepared, done: Appended, now: float) -> None:
        """All of it may come twice: a batch may be known whose collector died before it got here."""
        run, batch = one.submission.run, one.submission.batch
        if batch.checkpoints:
            self._store.put_checkpoints(run, dated(batch.checkpoints, one.attempt, now))
            self._checkpoints.pop(run, None)
        # A repeated event is known by its time; one that was given none until now cannot be told from another one.
        events = [event for event in batch.events if is_time(event.wall_time) or not done.duplicate]
        if events:
            self._store.put_events(run, dated(events, one.attempt, now))
        if batch.status:
            self._store.end_process(run, batch.process, batch.status)

    def _remember(self, one: Prepared, done: Appended) -> None:
        if done.duplicate:
            self._counts.duplicates += 1
            return
        self._counts.batches += 1
        self._counts.points += len(one.points)
        if one.points:
            run = one.submission.run
            self.memory_of(run).add(one.points)
            self._watching.committed(run, done.sequence)
            self._listeners.notify(run)

    def memory_of(self, run: str) -> RunMemory:
        """What is remembered of a run, from now on at the latest."""
        return self.memory.setdefault(run, RunMemory())

    def _ack(self, one: Prepared, done: Appended) -> Ack:
        batch = one.submission.batch
        findings = self._watching.findings(one.submission.run)
        return Ack(
            sequence=done.sequence,
            points=0 if done.duplicate else len(one.points),
            duplicate=done.duplicate,
            cursor=max((found.updated for found in findings), default=batch.since),
            findings=[found for found in findings if found.updated > batch.since],
            advice=[] if batch.status else self._advice(one.submission.run, one.attempt, findings),
        )

    def _advice(self, run: str, attempt: int, findings: Sequence[StoredFinding]) -> list[Advice]:
        if not any(one.finding.severity == "critical" for one in findings) or attempt != self._attempt(run, ""):
            return []
        if run not in self._checkpoints:
            self._checkpoints[run] = self._store.checkpoints(run)
        return advise(findings, self._checkpoints[run], attempt, self.memory_of(run).steps, time.time())
