"""What is kept of each run beside the store, so that an ack or a scrape asks no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwatch.schema import Block, Point, Series


class RunMemory:
    """One run since the collector started; safe to use from several threads. It follows the newest attempt that it has seen."""

    def __init__(self) -> None:
        self.attempt = 0
        self.steps: dict[str, int] = {}
        """The highest step of each stream."""
        self._nonfinite: Counter[str] = Counter()
        self._newest: dict[Series, Point] | None = None
        self._owner = Lock()

    def add(self, block: Block) -> None:
        """Take in committed points of one attempt."""
        if not block:
            return
        attempt = block.series[0].attempt
        with self._owner:
            self._count(block)
            if attempt > self.attempt:
                self.attempt, self.steps = attempt, {}
                self._newest = None if self._newest is None else {}
            if attempt == self.attempt:
                self._advance(block)

    def nonfinite(self) -> dict[str, int]:
        """How many NaN and infinite values came, by role."""
        with self._owner:
            return dict(self._nonfinite)

    def newest(self, attempt: int) -> list[Point] | None:
        """The newest value of each series, or None where it is not followed: then `follow` it."""
        with self._owner:
            return None if self._newest is None or attempt != self.attempt else list(self._newest.values())

    def begin(self, attempt: int) -> None:
        """Follow the newest values of an attempt from now on; what came before is still to be told by `seed`."""
        with self._owner:
            if self._newest is None and attempt >= self.attempt:
                self.attempt, self._newest = attempt, {}

    def seed(self, attempt: int, points: Iterable[Point]) -> None:
        """Tell the newest values as the store had them after `begin`: one that came since wins."""
        with self._owner:
            if self._newest is not None and attempt == self.attempt:
                before, self._newest = self._newest, {one.series: one for one in points}
                for point in before.values():
                    self._take(self._newest, point)

    def _count(self, block: Block) -> None:
        values = _view(block.value)
        bad = ~np.isfinite(values)
        if bad.any():
            index, counts = np.unique(_view(block.index)[bad], return_counts=True)
            for at, count in zip(index.tolist(), counts.tolist(), strict=True):
                self._nonfinite[block.series[at].role] += count

    def _advance(self, block: Block) -> None:
        for stream, step in highest_steps(block):
            self.steps[stream] = max(step, self.steps.get(stream, step))
        if self._newest is not None:
            for at, row in last_rows(block):
                point = Point(block.series[at], block.step[row], block.value[row], block.wall_time[row], block.flags[row])
                self._take(self._newest, point)

    @staticmethod
    def _take(newest: dict[Series, Point], point: Point) -> None:
        known = newest.get(point.series)
        if known is None or point.step >= known.step:
            newest[point.series] = point


def highest_steps(block: Block) -> Iterable[tuple[str, int]]:
    """Each stream that the block has points of, and its highest step."""
    step = _view(block.step)
    streams = {one.stream for one in block.series}
    if len(streams) == 1:
        return [(streams.pop(), int(step.max()))]
    numbers = {stream: number for number, stream in enumerate(streams)}
    of_point = np.array([numbers[one.stream] for one in block.series])[_view(block.index)]
    return [(stream, int(step[of_point == number].max())) for stream, number in numbers.items() if (of_point == number).any()]


def last_rows(block: Block) -> Iterable[tuple[int, int]]:
    """Of each series that the block has points of: its position in the table, and the row of the last write of its highest step."""
    index, step = _view(block.index), _view(block.step)
    rows = np.arange(len(block))
    if (step[1:] < step[:-1]).any():
        rows = np.argsort(step, kind="stable")
    last = np.full(len(block.series), -1)
    # Of equal positions the last one assigned stays.
    last[index[rows]] = rows
    used = np.flatnonzero(last >= 0)
    return zip(used.tolist(), last[used].tolist(), strict=True)


def _view(column: Any) -> npt.NDArray[Any]:
    return np.frombuffer(column, dtype=column.typecode)
