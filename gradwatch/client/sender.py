"""Delivers one process's batches in their order, over the spool while the collector is away. Runs in the background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gradwatch.client.backoff import Backoff
from gradwatch.client.batches import Batcher
from gradwatch.client.line import Line, Source
from gradwatch.client.notices import Notices
from gradwatch.client.outcome import Outcome
from gradwatch.client.queue import Loss, RecordQueue, merge_losses
from gradwatch.client.records import Happened
from gradwatch.client.splitting import halves, size_of
from gradwatch.client.spool import Spool
from gradwatch.client.transport import Transport
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.schema import Event
from gradwatch.wire import Batch, OpenRun

NO_ACCESS, UNKNOWN, TOO_LARGE = frozenset((401, 403)), 404, 413
REFUSED_WAIT = 30.0
COLLECT_SECONDS = 0.2
LOSS_SECONDS = 5.0
MOST_LOSSES = 1000


class Sender:
    """One process's way to the collector. `connect` None: everything goes to the spool."""

    def __init__(
        self,
        request: OpenRun,
        queue: RecordQueue,
        batcher: Batcher,
        spool: Spool,
        connect: Callable[[], Transport] | None,
        outcome: Outcome,
        notices: Notices,
        limit: int,
    ) -> None:
        self._request = request
        self._queue = queue
        self._batcher = batcher
        self._folder = spool.folder
        self._connect = connect
        self._outcome = outcome
        self._notices = notices
        self._transport: Transport | None = None
        self._is_open = False
        self._reopened_for = ""
        self._collecting = threading.Lock()
        self._collected = 0.0
        self._losses: list[Loss] = []
        self._losses_told = 0.0
        self.line = Line(spool, limit, notices, self._lose)
        self.backoff = Backoff()
        self.abandoned = False
        self.processed = 0

    def turn(self) -> None:
        """Take what waits and deliver it, or put it in the spool."""
        self.collect()
        if self._connect is None or self.backoff.remaining:
            self._to_spool()
        elif self._announce():
            self._deliver()
        self.line.sync()

    def collect(self) -> None:
        """Make batches of what waits in the queue."""
        with self._collecting:
            taken = self._queue.take()
            self._collected = time.monotonic()
            for batch in self._batcher.batches(taken):
                self._add(batch)
            losses, self._batcher.losses = self._batcher.losses, []
            self._lose(losses)
            self.processed = taken.total

    def add_empty(self, status: str = "") -> None:
        """Put a batch without content at the end of the line: it fetches findings, or ends the process's part."""
        self.line.add(self._batcher.empty(status))

    def tell_losses(self, now: bool = False) -> None:
        """Log what was lost since the last time as an event."""
        if not self._losses or not (now or time.monotonic() - self._losses_told > LOSS_SECONDS):
            return
        losses, self._losses, self._losses_told = self._losses, [], time.monotonic()
        loss = merge_losses(losses)
        steps = "" if loss.first is None else f" of steps {loss.first} to {loss.last}"
        facts = {"values": loss.values, "first_step": loss.first, "last_step": loss.last}
        message = f"{loss.values:,} values{steps} were dropped: {loss.why}"
        self._queue.put(Happened(Event(kind="lost_data", message=message, step=loss.last, wall_time=time.time(), facts=facts)))

    def abandon(self, status: str) -> None:
        """Put everything that is not delivered in the spool, from another thread: the background thread does nothing more.

        Where that thread waits for a device for ever, what it has taken is lost.
        """
        if self._collecting.acquire(timeout=1.0):
            self._collecting.release()
            self.collect()
        with self.line.lock:
            self.abandoned = True
            self.add_empty(status)
            self.line.to_spool()
        self.line.close()

    def close(self) -> None:
        """Let go of the files: everything is delivered or in the spool."""
        with self.line.lock:
            self.abandoned = True
        self.line.close()

    def disconnect(self) -> None:
        """Let go of the connection."""
        if self._transport is not None:
            self._transport.close()

    def _add(self, batch: Batch) -> None:
        try:
            if batch.samples or batch.checkpoints or batch.events:
                msgspec.msgpack.encode(batch)
        except Exception as error:  # noqa: BLE001 - the client boundary: what cannot travel must not stop what comes after it
            self._notices.trouble("encoding a batch", error)
            self._lose([Loss(size_of(batch), "it could not be encoded")])
        else:
            self.line.add(batch)

    def _announce(self) -> bool:
        """Whether the collector knows this process; asks it where it may not."""
        if self._is_open or self._connect is None:
            return self._is_open
        try:
            self._transport = self._transport or self._connect()
            self._outcome.joined(self._transport.open(self._request))
        except UnavailableError as error:
            return self._away(str(error), error.retry_after)
        except RefusedError as error:
            return self._away(f"the collector refuses the run: {error}", REFUSED_WAIT)
        self._is_open = True
        return True

    def _deliver(self) -> None:
        while not self.abandoned and (first := self.line.first()) is not None and self._send(*first):
            if first[1] is Source.SPOOL and time.monotonic() - self._collected > COLLECT_SECONDS:
                self.collect()
        if self.line.is_clear:
            self.tell_losses()

    def _send(self, batch: Batch, source: Source) -> bool:
        """Send the first batch of the line; whether the next one may go."""
        assert self._transport is not None
        try:
            ack = self._transport.send(self._request.id, replace(batch, since=self._outcome.cursor))
        except UnavailableError as error:
            return self._away(str(error), error.retry_after)
        except RefusedError as error:
            return self._was_refused(batch, source, error)
        with self.line.lock:
            if self.abandoned:
                return False
            self._outcome.acked(batch, ack)
            self.line.settle(batch, source)
        self.backoff.succeeded()
        self._outcome.back()
        return True

    def _was_refused(self, batch: Batch, source: Source, error: RefusedError) -> bool:
        if error.status in NO_ACCESS:
            return self._away(str(error), REFUSED_WAIT)
        if error.status == UNKNOWN and self._reopened_for != batch.id:
            # The collector has lost the run, or is another one: announce the process again.
            self._reopened_for, self._is_open = batch.id, False
            return self._announce()
        parts = halves(batch) if error.status == TOO_LARGE else None
        with self.line.lock:
            if self.abandoned:
                return False
            if parts is not None:
                self.line.split(parts, source)
            else:
                self._outcome.refused += 1
                self.line.set_aside(batch, str(error))
                self.line.settle(batch, source)
        return True

    def _away(self, why: str, wait: float | None) -> bool:
        self.backoff.failed(wait)
        self._to_spool()
        self._outcome.away(why, f"Training goes on; what it logs is kept in {self._folder} and sent later")
        return False

    def _to_spool(self) -> None:
        with self.line.lock:
            if not self.abandoned:
                self.line.to_spool()

    def _lose(self, losses: list[Loss]) -> None:
        self._losses += losses
        if len(self._losses) > MOST_LOSSES:
            self._losses = [merge_losses(self._losses)]
        for loss in losses:
            self._outcome.lose(loss)
