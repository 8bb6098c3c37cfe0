"""Placed rows to blocks of points: keys become series, the step's own key is left out."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gradwatch.importers.attempts import Placed
from gradwatch.metrics import resolve
from gradwatch.schema import FROM_NULL, Block, Series

BLOCK_POINTS = 20_000
MAX_SERIES = 50_000
"""Of one file: more come from keys that are no metric names, or from rows that all have the same step."""
_CONFIG_KEYS = 2_000


class RunLog:
    """What a file told of one run, beside its points."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.config: dict[str, Any] = {}
        self._steps: set[int] | None = None

    def count(self, placed: Placed) -> None:
        """Take one row into account; rows of an axis of its own count once a step, as they are one record of the log."""
        row = placed.row
        if row.config and len(self.config) < _CONFIG_KEYS:
            self.config.update(row.config)
        if row.axis:
            self._steps = set() if self._steps is None else self._steps
            self._steps.add(placed.step)
            self.rows = len(self._steps)
        else:
            self.rows += row.record
        if row.values:
            self.first_step = placed.step if self.first_step is None else min(self.first_step, placed.step)
            self.last_step = placed.step if self.last_step is None else max(self.last_step, placed.step)


_Shape = tuple[str, int, int, tuple[str, ...]]
"""What rows with the same series have in common: run, attempt, writer and keys."""


class Blocks:
    """Collects points run by run and hands them out in blocks of about `BLOCK_POINTS`."""

    def __init__(self, warn: Callable[[str], None] = lambda _: None) -> None:
        self._warn = warn
        self._series: set[tuple[str, int, int, str]] = set()
        self.runs: dict[str, RunLog] = {}
        self._open: dict[str, Block] = {}
        self._ids: dict[_Shape, array[int]] = {}

    def of(self, placed: Iterable[Placed]) -> Iterator[tuple[str, Block]]:
        """The rows' points as (run, block), the last blocks after the last row."""
        for one in placed:
            run = one.row.run
            log = self.runs.get(run)
            if log is None:
                log = self.runs[run] = RunLog()
            log.count(one)
            if one.row.values:
                block = self._open.setdefault(run, Block())
                self._add(block, run, one)
                if len(block) >= BLOCK_POINTS:
                    yield run, self._close(run)
        yield from self.take()

    def take(self) -> Iterator[tuple[str, Block]]:
        """The points that still wait for their block to fill."""
        for run in list(self._open):
            if len(self._open[run]):
                yield run, self._close(run)

    def _close(self, run: str) -> Block:
        self._ids = {shape: ids for shape, ids in self._ids.items() if shape[0] != run}
        return self._open.pop(run)

    def _add(self, block: Block, run: str, placed: Placed) -> None:
        """Append a row's points, column by column: most rows of a log have the keys of an earlier one."""
        row = placed.row
        shape = (run, placed.attempt, placed.writer, tuple(row.values))
        ids = self._ids.get(shape)
        if ids is None:
            row.values = self._within_limit(shape[:3], row.values)
            ids = array("i", (block.series_id(series_of(key, placed.attempt, placed.writer)) for key in row.values))
            if len(ids) == len(shape[3]):
                self._ids[shape] = ids
        count = len(ids)
        block.index.extend(ids)
        block.step.extend(array("q", (placed.step,)) * count)
        block.wall_time.extend(array("d", (row.wall_time,)) * count)
        block.value.extend(row.values.values())
        block.flags.frombytes(bytes(FROM_NULL if key in row.nulls else 0 for key in row.values) if row.nulls else bytes(count))

    def _within_limit(self, place: tuple[str, int, int], values: dict[str, float]) -> dict[str, float]:
        """The values without those that would be series beyond the limit."""
        fresh = [one for key in values if (one := (*place, key)) not in self._series]
        room = MAX_SERIES - len(self._series)
        self._series.update(fresh[:room])
        if len(fresh) <= room:
            return values
        self._warn(f"the log has more than {MAX_SERIES:,} series (keys, attempts and writers): the later ones were left out")
        dropped = {one[3] for one in fresh[room:]}
        return {key: value for key, value in values.items() if key not in dropped}


def series_of(key: str, attempt: int, writer: int) -> Series:
    """The series of a key in an attempt, of the k-th writer."""
    axes = resolve(key)
    stream = axes.stream if writer == 1 else f"{axes.stream}.{writer}"
    return Series(**axes._replace(stream=stream)._asdict(), source_key=key, attempt=attempt)
