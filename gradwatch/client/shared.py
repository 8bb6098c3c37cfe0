"""One transport of this process for all its runs on one store, which admits one owner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from gradwatch.client.transport import Transport
from gradwatch.wire import Ack, Batch, Opened, OpenRun


class Shared:
    """A transport's use by one run; the last one to close it closes the transport."""

    _lock = threading.RLock()
    _open: dict[Path, tuple[Transport, int]] = {}  # noqa: RUF012 - shared by design

    def __init__(self, folder: Path, make: Callable[[Path], Transport]) -> None:
        self._folder = folder.resolve()
        self._is_closed = False
        with self._lock:
            inner, users = self._open.get(self._folder) or (make(folder), 0)
            self._open[self._folder] = inner, users + 1
        self._inner = inner

    def open(self, request: OpenRun) -> Opened:
        """Announce a process; create its run, or join it."""
        return self._inner.open(request)

    def send(self, run: str, batch: Batch) -> Ack:
        """Deliver a batch; when this returns, the batch is durable."""
        return self._inner.send(run, batch)

    def close(self) -> None:
        """End this use; a second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            inner, users = self._open.pop(self._folder)
            if users > 1:
                self._open[self._folder] = inner, users - 1
                return
        inner.close()
