"""Transports that need no HTTP: to a collector of this process, or to one that lives in a training process."""

from __future__ import annotations

from pathlib import Path

from gradwatch.client.query import Query
from gradwatch.collector.core import Collector
from gradwatch.store import open_store
from gradwatch.wire import Ack, Batch, Opened, OpenRun

JUDGE_SECONDS = 5.0


class Direct:
    """A `Transport` to a started collector of this process, which stays its owner's."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    @property
    def query(self) -> Query:
        """What can be asked about the runs."""
        return self._collector

    def open(self, request: OpenRun) -> Opened:
        """Announce a process; create its run, or join it."""
        return self._collector.open(request)

    def send(self, run: str, batch: Batch) -> Ack:
        """Deliver a batch; when this returns, the batch is durable."""
        return self._collector.submit(run, batch).result()

    def close(self) -> None:
        """Nothing is held open."""


class InProcess(Direct):
    """A `Transport` to a collector of its own on the store in the folder `data`. StoreError where the folder cannot be used."""

    def __init__(self, data: Path) -> None:
        self._store = open_store(data)
        super().__init__(Collector(self._store))
        self._collector.start()

    def close(self) -> None:
        """Have judged what can be within a few seconds, and close the store; a second call does nothing."""
        if self._collector.watching.alive:
            self._collector.watching.wait_until_judged(JUDGE_SECONDS)
        self._collector.close()
        self._store.close()
