"""The one thread that writes: whatever waits when it is free becomes one commit."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Condition, Event, Lock, Thread
from time import monotonic
from typing import NamedTuple, TypeVar

import duckdb

from gradwatch.errors import GradwatchError, RefusedError, UnavailableError
from gradwatch.schema import Block
from gradwatch.wire import Ack, Batch

MOST_POINTS = 200_000
"""Of one commit."""
PATIENCE = 0.5
"""How long a commit may be held back for more, in terms of the last one's duration."""
IDLE_SECONDS = 30.0
"""Between two calls of `tidy`, at least."""

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class Submission(NamedTuple):
    """A batch that waits for its commit. `size` are the bytes that it holds."""

    run: str
    batch: Batch
    points: Block
    size: int
    future: Future[Ack]


class Failure(NamedTuple):
    """A submission that a commit could not finish, and why."""

    submission: Submission
    error: Exception


class Writer:
    """Runs `commit` on groups of submissions; it must resolve each one's future, give it back as a failure, or raise.

    Where it raises on a group, each submission is tried alone, so that one bad batch never fails another. `tidy` is called now and
    then, when nothing waits.
    """

    def __init__(
        self, commit: Callable[[list[Submission]], Sequence[Failure]], tidy: Callable[[], None], idle: float = IDLE_SECONDS
    ) -> None:
        self._commit = commit
        self._tidy = tidy
        self._idle = idle
        self._thread = ThreadPoolExecutor(1, "gradwatch-writer")
        self._queue: deque[Submission] = deque()
        self._suspects: deque[Submission] = deque()
        self._outstanding: set[Future[Ack]] = set()
        self._scheduled = False
        self._closing = Event()
        self._owner = Lock()
        self._arrived = Condition(self._owner)
        self._expected = 1
        self._last_seconds = 0.0
        self.errors = 0
        self.trouble = ""
        """Why the last commit failed, where it did and nothing was committed since."""

    def start(self) -> None:
        """Begin to call `tidy`."""
        Thread(target=self._keep_tidy, name="gradwatch-tidy", daemon=True).start()

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Run something between two commits."""
        with self._owner:
            self._refuse_when_closing()
            return self._thread.submit(work)

    def put(self, submission: Submission) -> None:
        """Queue a submission. UnavailableError when the collector is stopping."""
        with self._owner:
            self._refuse_when_closing()
            # From here on nobody can cancel it: a client that goes away does not undo what it sent.
            submission.future.set_running_or_notify_cancel()
            self._outstanding.add(submission.future)
            self._queue.append(submission)
            self._arrived.notify()
            if not self._scheduled:
                self._scheduled = True
                self._schedule()

    def waiting_points(self) -> int:
        """Points that wait for their commit."""
        with self._owner:
            return sum(len(one.points) for one in (*self._queue, *self._suspects))

    @property
    def alive(self) -> bool:
        """Whether submissions are accepted."""
        return not self._closing.is_set()

    def close(self) -> None:
        """Commit everything that waits, and stop."""
        with self._owner:
            self._closing.set()
            outstanding = set(self._outstanding)
        wait(outstanding)
        self._thread.shutdown()

    def _refuse_when_closing(self) -> None:
        if self._closing.is_set():
            raise UnavailableError("the collector is stopping: send the same request again when it is back")

    def _schedule(self) -> None:
        group: list[Submission] = []
        self._thread.submit(self._work, group).add_done_callback(partial(self._settle, group))

    def _work(self, group: list[Submission]) -> Sequence[Failure]:
        """Commit what comes next; `group` tells what that was, should it fail."""
        with self._owner:
            if self._suspects:
                group.append(self._suspects.popleft())
            else:
                self._gather()
                group.extend(self._taken())
        begun = monotonic()
        failures = self._commit(group)
        self.trouble = ""
        self._last_seconds = monotonic() - begun
        return failures

    def _gather(self) -> None:
        """Wait for those who had their ack a moment ago and are about to send again, for less than their own commit would take.

        Without that, senders that wait for acks fall into two halves, and each commit takes one of them.
        """
        self._arrived.wait_for(lambda: len(self._queue) >= self._expected, self._last_seconds * PATIENCE)

    def _taken(self) -> Iterator[Submission]:
        """As many as one commit may take, and one in any case."""
        points = 0
        while self._queue and (not points or points + len(self._queue[0].points) <= MOST_POINTS):
            points += len(self._queue[0].points)
            yield self._queue.popleft()

    def _settle(self, group: list[Submission], work: Future[Sequence[Failure]]) -> None:
        error = work.exception()
        failed = [one for one in group if not one.future.done()] if error is not None else []
        self._forget(group)
        with self._owner:
            if len(group) > 1:
                self._suspects.extend(failed)
            self._expected = max(1, len(group) + len(self._queue))
            # Before the last future is resolved, since `close` ends the thread then.
            self._scheduled = bool(self._suspects or self._queue)
            if self._scheduled:
                self._schedule()
        if error is None:
            for one in work.result():
                self._give_up(one.submission, one.error)
        elif len(group) == 1 and failed:
            self._give_up(failed[0], error)

    def _give_up(self, one: Submission, error: BaseException) -> None:
        self.errors += 1
        told = _told(error)
        self.trouble = str(told) if isinstance(told, UnavailableError) else self.trouble
        logger.error("batch %r of run %r was not committed", one.batch.id, one.run, exc_info=error)
        one.future.set_exception(told)
        self._forget([one])

    def _forget(self, group: list[Submission]) -> None:
        with self._owner:
            self._outstanding.difference_update(one.future for one in group if one.future.done())

    def _keep_tidy(self) -> None:
        last = monotonic()
        while not self._closing.wait(min(self._idle, 1.0)):
            if monotonic() - last >= self._idle and not self._outstanding:
                last = monotonic()
                self._thread.submit(self._tidy).add_done_callback(_log_failure)


def _told(error: BaseException) -> GradwatchError:
    """What a sender is told: what no retry can mend is refused, the rest may be sent again."""
    if isinstance(error, GradwatchError):
        return error
    of_content = isinstance(error, ValueError | TypeError | OverflowError | duckdb.DataError)
    if of_content or (isinstance(error, duckdb.InvalidInputException) and "Conversion Failure" in str(error)):
        return RefusedError(f"the batch cannot be stored: {error}")
    return UnavailableError(f"the collector cannot write now, see its log: {error}")


def _log_failure(work: Future[None]) -> None:
    if work.exception() is not None:
        logger.error("tidying the store failed", exc_info=work.exception())
