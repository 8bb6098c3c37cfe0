"""One process's part in a run: its queue, and the background thread that empties it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from gradwatch.client.batches import Batcher
from gradwatch.client.flag import Flag
from gradwatch.client.frames import Header
from gradwatch.client.identity import Identity
from gradwatch.client.notices import Notices
from gradwatch.client.outcome import Outcome
from gradwatch.client.queue import RecordQueue
from gradwatch.client.records import Record
from gradwatch.client.sender import COLLECT_SECONDS, Sender
from gradwatch.client.spool import Spool
from gradwatch.client.transport import Transport
from gradwatch.settings import Settings
from gradwatch.wire import OpenRun

AWAY_SECONDS = 0.5
POLLS = (1.0, 2.0, 4.0)
"""Seconds after the last batch at which findings are asked for: detectors run behind the commit. A run that hangs falls silent."""
LAST_POLL_SECONDS = 0.25
MEGABYTE = 1_000_000


class Backlog(NamedTuple):
    """What was logged and has not reached the collector: values in memory, and bytes in the spool."""

    values: int = 0
    spooled_bytes: int = 0


class Worker:
    """Logs for one process, from any of its threads."""

    def __init__(
        self,
        request: OpenRun,
        identity: Identity,
        settings: Settings,
        connect: Callable[[], Transport] | None,
        notices: Notices,
        page_base: str,
    ) -> None:
        self.request = request
        self.folder = settings.dir
        self.outcome = Outcome(page_base, notices)
        self._notices = notices
        self._wake = Flag()
        self._done = Flag()
        self._moved = threading.Condition()
        self._ending = ""
        self._polls = len(POLLS)
        self._delivered = (0, 0.0)
        self.queue = RecordQueue(settings.queue_points, self._wake)
        self._batcher = Batcher(request.process, identity.point_rank, notices)
        header = Header(request, *identity.born)
        spool = Spool(settings.dir, header, settings.spool_mb * MEGABYTE)
        self._sender = Sender(request, self.queue, self._batcher, spool, connect, self.outcome, notices, settings.queue_points)
        self.is_offline = connect is None
        self._thread = threading.Thread(target=self._run, name="gradwatch", daemon=True)

    def start(self) -> None:
        """Start the background thread; where the interpreter is ending and has no more threads, `end` does all."""
        self._wake.set()
        try:
            self._thread.start()
        except RuntimeError:
            self._done.set()

    def put(self, record: Record) -> None:
        """Log a record."""
        self.queue.put(record)

    @property
    def waiting(self) -> int:
        """Bytes in the spool."""
        return self._sender.line.spooled

    @property
    def backlog(self) -> Backlog:
        """What waits now."""
        return Backlog(self.queue.weight + self._sender.line.values, self.waiting)

    @property
    def dropped(self) -> int:
        """Values that never reach the collector."""
        return self.outcome.lost + self.queue.dropped

    @property
    def _is_kept(self) -> bool:
        return self.is_offline and not self._sender.line.in_memory

    def flush(self, seconds: float) -> bool:
        """Wait until all that was logged so far is durable at the collector (offline: in the spool)."""
        target = self.queue.put_count
        deadline = time.monotonic() + seconds
        formed = -1
        with self._moved:
            while True:
                self._wake.set()
                if formed < 0 and self._sender.processed >= target:
                    formed = self._batcher.formed
                if formed >= 0 and (self._sender.line.settled >= formed or self._sender.line.is_clear or self._is_kept):
                    return True
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._done.is_set():
                    return False
                self._moved.wait(min(remaining, 0.5))

    def end(self, status: str, seconds: float) -> None:
        """End the process's part: deliver the rest within `seconds`, spool what is left. A second call may cut it short."""
        self._ending = status
        self._wake.set()
        try:
            self._done.wait(seconds)
        finally:
            # After a second Ctrl-C as well, what is left goes to the spool.
            if not self._sender.abandoned:
                self._sender.abandon(status)
            self._done.set()

    def _run(self) -> None:
        while not self._sender.abandoned:
            self._wake.take(AWAY_SECONDS if self._sender.backoff.remaining else COLLECT_SECONDS)
            ending = self._ending
            try:
                self._turn(ending)
            except Exception as error:  # noqa: BLE001 - the client boundary: the thread goes on
                self._notices.trouble("the background thread", error)
                self._sender.backoff.failed()
            with self._moved:
                self._moved.notify_all()
            if ending:
                break
        self._disconnect()
        self._done.set()

    def _disconnect(self) -> None:
        try:
            self._sender.disconnect()
        except Exception as error:  # noqa: BLE001 - the client boundary
            self._notices.trouble("closing the connection", error)

    def _turn(self, ending: str) -> None:
        if ending:
            self._finish(ending)
        else:
            self._sender.turn()
            self._poll()

    def _poll(self) -> None:
        """Some time after the last delivery, fetch what the detectors have found since."""
        points, at = self._delivered
        if self.outcome.points != points:
            self._delivered, self._polls = (self.outcome.points, time.monotonic()), 0
        elif self._polls < len(POLLS) and time.monotonic() - at > POLLS[self._polls]:
            self._polls += 1
            self._sender.add_empty()

    def _finish(self, status: str) -> None:
        """Deliver everything, then say how it ended; where the collector is away, everything goes to the spool at once."""
        sender = self._sender
        sender.backoff.hurry()
        sender.turn()
        sender.tell_losses(now=True)
        sender.turn()
        while sender.backoff.is_asked and not sender.line.is_clear and not sender.abandoned:
            self._wake.take(sender.backoff.remaining)
            sender.turn()
        if sender.line.is_clear and self.outcome.points:
            self._wake.take(LAST_POLL_SECONDS)
        sender.add_empty(status)
        sender.turn()
        sender.close()
