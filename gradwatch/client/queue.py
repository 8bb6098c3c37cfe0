"""The bounded queue between the calls of a run and its background thread: where it is full, the oldest go and are counted."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from gradwatch.client.flag import Flag
from gradwatch.client.records import Metrics, Record
from gradwatch.client.steps import StepCounter

WAKE_WEIGHT = 10_000


class Loss(NamedTuple):
    """Values that never reach the collector, of steps `first` to `last` (None: unknown), and why."""

    values: int
    why: str
    first: int | None = None
    last: int | None = None


class Taken(NamedTuple):
    """Everything that waited, and what was dropped before it since the last time; `total` counts all records so far."""

    records: list[Record]
    lost: list[Loss]
    skipped: StepCounter
    total: int


class RecordQueue:
    """First in, first out, for any number of threads. `limit` is the number of values that may wait.

    The lock is reentrant since a signal's handler may log while the interrupted code does.
    """

    def __init__(self, limit: int, wake: Flag) -> None:
        self._limit = limit
        self._much = min(limit, WAKE_WEIGHT)
        self._wake = wake
        self._lock = threading.RLock()
        self._records: deque[Record] = deque()
        self._weight = 0
        self._taken = 0
        self._lost: list[Loss] = []
        self._skipped = StepCounter()

    def put(self, record: Record) -> None:
        """Add a record; never waits for the background thread."""
        if record.weight > self._limit:
            self._refuse(record)
            return
        self._records.append(record)
        # Two threads may lose one of their additions here; `take` sets the sum right several times a second.
        self._weight = weight = self._weight + record.weight
        if weight > self._much:
            self._press()

    def _press(self) -> None:
        """Much waits: wake the background thread, and hold the limit."""
        if not self._wake.is_set():
            self._wake.set()
        if self._weight > self._limit:
            with self._lock:
                while self._weight > self._limit and self._records:
                    self._drop_oldest()

    @property
    def put_count(self) -> int:
        """The number of records so far, dropped ones included."""
        with self._lock:
            return self._taken + len(self._records)

    def take(self) -> Taken:
        """Everything that waits."""
        records: list[Record] = []
        with self._lock:
            self._weight = 0
            for _ in range(len(self._records)):
                records.append(self._records.popleft())
            self._taken = total = self._taken + len(records)
            lost, skipped = self._lost, self._skipped
            self._lost, self._skipped = [], StepCounter()
        return Taken(records, lost, skipped, total)

    @property
    def weight(self) -> int:
        """The number of values that wait."""
        return self._weight

    @property
    def dropped(self) -> int:
        """The number of values that were dropped since the last `take`."""
        return sum(one.values for one in self._lost)

    def _refuse(self, record: Record) -> None:
        with self._lock:
            self._taken += 1
            self._lost.append(Loss(record.weight, f"one call gave more than the {self._limit:,} values that may wait"))

    def _drop_oldest(self) -> None:
        record = self._records.popleft()
        self._taken += 1
        self._weight -= record.weight
        step = record.step if isinstance(record, Metrics) and type(record.step) is int else None
        self._lost.append(Loss(record.weight, "the queue was full", step, step))
        if len(self._lost) > 1000:
            self._lost = [merge_losses(self._lost)]
        if isinstance(record, Metrics):
            self._skipped.skip(record)


def merge_losses(losses: list[Loss]) -> Loss:
    """One loss for many."""
    first = [one.first for one in losses if one.first is not None]
    last = [one.last for one in losses if one.last is not None]
    why = "; ".join(dict.fromkeys(one.why for one in losses))
    return Loss(sum(one.values for one in losses), why, min(first, default=None), max(last, default=None))
