"""How batches reach a collector: over HTTP, or by a call in the same process."""

from __future__ import annotations

from typing import Protocol

from gradwatch.wire import Ack, Batch, Opened, OpenRun


class Transport(Protocol):
    """Where a client's batches go. Both calls may be repeated: a known process and a known batch change nothing.

    Both raise UnavailableError where a later try may succeed, and RefusedError where none can.
    """

    def open(self, request: OpenRun) -> Opened:
        """Announce a process; create its run, or join it."""

    def send(self, run: str, batch: Batch) -> Ack:
        """Deliver a batch; when this returns, the batch is durable."""

    def close(self) -> None:
        """Release the connection; a second call does nothing."""
