"""The batches of a process that are not delivered yet, in their order: on disk, then in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from gradwatch.client.notices import Notices
from gradwatch.client.queue import Loss
from gradwatch.client.splitting import number_of, size_of, steps_of
from gradwatch.client.spool import Spool
from gradwatch.wire import Batch


class Source(Enum):
    """Where the first batch of a line comes from."""

    PARTS = "parts"
    SPOOL = "spool"
    MEMORY = "memory"


class Line:
    """First come the parts of a first batch that was too large, then the spool, then what is in memory.

    `limit` values may wait in memory where the disk fails. The lock is never held during a request: a process can end while one
    hangs. `settled` is the number of the last batch that was done with.
    """

    def __init__(self, spool: Spool, limit: int, notices: Notices, lose: Callable[[list[Loss]], None]) -> None:
        self.lock = threading.RLock()
        self.settled = 0
        self._spool = spool
        self._limit = limit
        self._notices = notices
        self._lose = lose
        self._parts: deque[Batch] = deque()
        self._memory: deque[Batch] = deque()

    @property
    def spooled(self) -> int:
        """Bytes that wait on disk."""
        return len(self._spool)

    @property
    def in_memory(self) -> int:
        """Batches that wait in memory."""
        return len(self._memory)

    @property
    def values(self) -> int:
        """Values of the batches that wait in memory."""
        with self.lock:
            return sum(map(size_of, self._memory))

    @property
    def is_clear(self) -> bool:
        """Whether everything was delivered."""
        with self.lock:
            return not self._memory and not self._parts and not len(self._spool)

    def add(self, batch: Batch) -> None:
        """Put a batch at the end."""
        with self.lock:
            self._memory.append(batch)

    def first(self) -> tuple[Batch, Source] | None:
        """The first batch."""
        with self.lock:
            if self._parts:
                return self._parts[0], Source.PARTS
            if len(self._spool):
                self.to_spool()
                spooled = self._first_spooled()
                if spooled is not None:
                    return spooled, Source.SPOOL
            return (self._memory[0], Source.MEMORY) if self._memory else None

    def settle(self, batch: Batch, source: Source) -> None:
        """The first batch is done with."""
        with self.lock:
            if source is Source.PARTS:
                self._parts.popleft()
                if self._parts:
                    return
                source = Source.SPOOL if len(self._spool) else Source.MEMORY
            if source is Source.SPOOL:
                self._spool.advance()
            else:
                self._memory.popleft()
            self.settled = number_of(batch)

    def split(self, parts: tuple[Batch, Batch], source: Source) -> None:
        """The first batch goes as two."""
        with self.lock:
            if source is Source.PARTS:
                self._parts.popleft()
            self._parts.extendleft(reversed(parts))

    def to_spool(self) -> None:
        """Move what is in memory to the disk; where that fails it stays, within the limit.

        A batch that was split is whole again: it is the first one still. Questions without content are forgotten.
        """
        with self.lock:
            self._parts.clear()
            try:
                while self._memory:
                    first = self._memory[0]
                    if size_of(first) or first.status:
                        self._lose_batches(self._spool.append(first), "the spool was full")
                    self._memory.popleft()
            except OSError as error:
                self._notices.once("spool", f"the spool cannot be written ({error}); up to {self._limit:,} values wait in memory")
                self._bound_memory()

    def set_aside(self, batch: Batch, why: str) -> None:
        """Keep a refused batch where it is not sent again by itself."""
        try:
            path = self._spool.set_aside(batch)
            self._notices.once("refused", f"the collector refuses a batch ({why}); such batches are kept in {path}")
        except OSError as problem:
            self._notices.once("refused", f"the collector refuses a batch ({why}), and it cannot be kept ({problem})")
            self._lose_batches([batch], "refused by the collector")

    def sync(self) -> None:
        """Have the disk keep what was spooled a while ago."""
        try:
            with self.lock:
                self._spool.sync()
        except OSError as error:
            self._notices.once("fsync", f"the spool cannot be flushed to disk ({error})")

    def close(self) -> None:
        """Let go of the files; what waits there stays."""
        try:
            with self.lock:
                self._spool.close()
        except OSError as error:
            self._notices.once("fsync", f"the spool cannot be flushed to disk ({error})")

    def _first_spooled(self) -> Batch | None:
        first = self._spool.first()
        for path in self._spool.damaged:
            self._notices.once(f"damaged:{path}", f"{path} is damaged; `gradwatch sync {path.parent}` sends what is intact")
        self._spool.damaged.clear()
        return first

    def _bound_memory(self) -> None:
        weight = sum(map(size_of, self._memory))
        while weight > self._limit and len(self._memory) > 1:
            lost = self._memory.popleft()
            weight -= size_of(lost)
            self._lose_batches([lost], "the collector was away and the spool cannot be written")

    def _lose_batches(self, batches: Iterable[Batch], why: str) -> None:
        self._lose([Loss(size_of(one), why, *(steps_of(one) or (None, None))) for one in batches if size_of(one)])
