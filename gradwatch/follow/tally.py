"""What was read of each series, in a few numbers: enough to tell, when a file is read again, whether it says the same as before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from gradwatch.schema import Block, Series

_MASK = 2**64 - 1


class Count:
    """The points of one series: how many, a digest of them, and the digest as it was at 1, 2, 4, 8 … points."""

    __slots__ = ("count", "digest", "marks")

    def __init__(self, count: int = 0, digest: int = 0, marks: list[int] | None = None) -> None:
        self.count, self.digest, self.marks = count, digest, [] if marks is None else marks

    def add(self, point: int) -> None:
        """Take one more point, given as a hash, into account."""
        self.count += 1
        self.digest = (self.digest + point) & _MASK
        if not self.count & (self.count - 1):
            self.marks.append(self.digest)

    def record(self, known_marks: int = 0) -> list[Any]:
        """The count as it is written down, its marks from `known_marks` on."""
        return [self.count, self.digest, self.marks[known_marks:]]

    def differs(self, told: Count) -> bool:
        """Whether these points, at most as many as `told`, cannot be its first ones, as far as its digests go."""
        if self.count == told.count:
            return self.digest != told.digest
        return not self.count & (self.count - 1) and self.digest != told.marks[len(self.marks) - 1]


class Tally:
    """The counts of every series of one attempt."""

    def __init__(self) -> None:
        self.series: dict[int, Count] = {}
        self.total = 0

    def ids_of(self, block: Block) -> list[int]:
        """The identity of each series in the block's table."""
        ids = [series_id(one) for one in block.series]
        for one in ids:
            self.series.setdefault(one, Count())
        return ids

    def add(self, block: Block) -> None:
        """Count a block's points."""
        counts = [self.series[one] for one in self.ids_of(block)]
        for at, point in zip(block.index, point_hashes(block), strict=True):
            counts[at].add(point)
        self.total += len(block)

    def covers(self, other: Tally) -> bool:
        """Whether every series of `other` has as many points here."""
        mine = self.series
        return self.total >= other.total and all(key in mine and mine[key].count >= one.count for key, one in other.series.items())


def point_hashes(block: Block) -> Iterator[int]:
    """A hash of each point's step, value and flags, bit for bit; the same in every process."""
    # Python's hashes of integers and of tuples of them are not salted; those of floats are the same for -0.0 and 0.0.
    bits = memoryview(block.value).cast("B").cast("q")
    return map(hash, zip(block.step, bits, block.flags, strict=True))


@lru_cache(maxsize=100_000)
def series_id(series: Series) -> int:
    """The series in 64 bits, whatever its attempt."""
    packed = msgspec.msgpack.encode(msgspec.structs.replace(series, attempt=1))
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "big")


def kept(block: Block, places: Iterable[int]) -> Block:
    """The points of a block at `places`, which ascend."""
    result = Block()
    ids = [-1] * len(block.series)
    for at in places:
        index = block.index[at]
        if ids[index] < 0:
            ids[index] = result.series_id(block.series[index])
        result.add_id(ids[index], block.step[at], block.value[at], block.wall_time[at], block.flags[at])
    return result


def by_attempt(block: Block) -> list[tuple[int, Block]]:
    """The block's points attempt by attempt, the first one first."""
    numbers = sorted({one.attempt for one in block.series})
    if len(numbers) == 1:
        return [(numbers[0], block)]
    attempts = [one.attempt for one in block.series]
    return [(number, kept(block, (at for at, index in enumerate(block.index) if attempts[index] == number))) for number in numbers]
