"""One attempt of a run on its way from a file to the collector: what was told of it, and what is new in a reading."""

from __future__ import annotations

from typing import Any

from gradwatch.follow.tally import Count, Tally, kept, point_hashes
from gradwatch.schema import Block

LOWEST = -(2**63)
_NONE = Count()


class DivergedError(Exception):
    """The file no longer says what was read from it before: what it says now belongs to another attempt."""


class Lane:
    """Where the points of one attempt within a file go, and which of them were told.

    `launch` names the attempt to the collector; `process` counts the processes that wrote to it, since one ends when the log does;
    `base` counts the points that the attempt had before this file; `beginning` tells the file. `told` is what the collector has,
    and `pending` the record of a batch that it may have; `reading` is what the present reading of the file gave.
    """

    def __init__(self, number: int, run: str, attempt: int, launch: str) -> None:
        self.number, self.run, self.attempt, self.launch = number, run, attempt, launch
        self.process, self.base, self.beginning = 1, 0, ""
        self.ended = False
        self.opened = False
        self.top = LOWEST
        self.told = Tally()
        self.pending: dict[str, Any] | None = None
        self.reading = Tally()
        self._caught_up = True

    @property
    def process_name(self) -> str:
        """The process as the collector knows it."""
        return f"{self.launch}.{self.process}"

    def settle(self, reached: int) -> bool:
        """Whether the collector's count of the attempt's points fits what was told; it decides what is `pending`."""
        pending, self.pending = self.pending, None
        if pending is not None and reached == self.base + pending["total"]:
            self.apply(pending)
        elif reached == 0:  # a collector that starts anew
            self.base, self.top, self.told = 0, LOWEST, Tally()
        fits = reached == self.base + self.told.total
        self._caught_up = not self.told.total
        return fits

    def fresh(self, block: Block) -> Block:
        """The block's points that were not told yet. DivergedError where it contradicts those that were."""
        if self._caught_up:
            return block
        ids = self.reading.ids_of(block)
        now, before = [self.reading.series[one] for one in ids], [self.told.series.get(one, _NONE) for one in ids]
        places = []
        for at, (index, point) in enumerate(zip(block.index, point_hashes(block), strict=True)):
            count, known = now[index], before[index]
            count.add(point)
            if count.count > known.count:
                places.append(at)
            elif count.differs(known):
                raise DivergedError(f"{block.series[index].source_key or block.series[index].metric} at step {block.step[at]:,}")
        self.reading.total += len(block)
        if self.reading.total == len(places):
            raise DivergedError(f"{block.series[0].source_key or block.series[0].metric} was not there before")
        self._caught_up = self.reading.covers(self.told)
        return block if len(places) == len(block) else kept(block, places)

    def announce(self, block: Block) -> dict[str, Any]:
        """Count a block as told; returns the record of it, which is written down before the block is sent."""
        ids = self.told.ids_of(block)
        marks = {one: len(self.told.series[one].marks) for one in ids}
        self.told.add(block)
        highest = max(block.step)
        self.top = max(self.top, highest)
        series = {f"{one:x}": self.told.series[one].record(known) for one, known in marks.items()}
        return {"lane": self.number, "total": self.told.total, "top": self.top, "series": series}

    def apply(self, record: dict[str, Any]) -> None:
        """Take the record of a block that was sent for what was told."""
        self.top, self.told.total = record["top"], record["total"]
        for key, (count, digest, marks) in record["series"].items():
            one = self.told.series.setdefault(int(key, 16), Count())
            one.count, one.digest = count, digest
            one.marks += marks

    def record(self) -> dict[str, Any]:
        """All that is to be remembered of the lane, but for `pending`."""
        names = ("run", "attempt", "launch", "process", "base", "beginning", "ended", "top")
        series = {f"{key:x}": one.record() for key, one in self.told.series.items()}
        return {"lane": self.number, **{name: getattr(self, name) for name in names}, "total": self.told.total, "series": series}
