"""Placed rows to blocks of points: keys become series, the step's own key is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gradwatch.importers.axis import Placed
from gradwatch.metrics import resolve
from gradwatch.schema import FROM_NULL, Block, Series

BLOCK_POINTS = 20_000
MAX_SERIES = 200_000
_CONFIG_KEYS = 2_000


class RunLog:
    """What a file told of one run, beside its points."""

    def __init__(self, name: str) -> None:
        self.name = name
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
            self.rows += 1
        if row.values:
            self.first_step = placed.step if self.first_step is None else min(self.first_step, placed.step)
            self.last_step = placed.step if self.last_step is None else max(self.last_step, placed.step)


class Blocks:
    """Collects points run by run and hands them out in blocks of about `BLOCK_POINTS`."""

    def __init__(self) -> None:
        self.runs: dict[str, RunLog] = {}
        self._open: dict[str, Block] = {}
        self._ids: dict[tuple[str, int, int], dict[str, int]] = {}

    def of(self, placed: Iterable[Placed]) -> Iterator[tuple[str, Block]]:
        """The rows' points as (run, block), the last blocks after the last row."""
        for one in placed:
            run = one.row.run
            log = self.runs.get(run)
            if log is None:
                log = self.runs[run] = RunLog(run)
            log.count(one)
            if one.row.values:
                block = self._open.setdefault(run, Block())
                self._add(block, run, one)
                if len(block) >= BLOCK_POINTS:
                    yield run, self._close(run)
        for run in list(self._open):
            if len(self._open[run]):
                yield run, self._close(run)

    def _close(self, run: str) -> Block:
        self._ids = {key: ids for key, ids in self._ids.items() if key[0] != run}
        return self._open.pop(run)

    def _add(self, block: Block, run: str, placed: Placed) -> None:
        row = placed.row
        place = (run, placed.attempt, placed.writer)
        ids = self._ids.get(place)
        if ids is None:
            ids = self._ids[place] = {}
        step, wall_time, nulls = placed.step, row.wall_time, row.nulls
        add = block.add_id
        for key, value in row.values.items():
            at = ids.get(key)
            if at is None:
                at = ids[key] = block.series_id(series_of(key, placed.attempt, placed.writer))
            add(at, step, value, wall_time, FROM_NULL if key in nulls else 0)


def series_of(key: str, attempt: int, writer: int) -> Series:
    """The series of a key in an attempt, of the k-th writer."""
    axes = resolve(key)
    stream = axes.stream if writer == 1 else f"{axes.stream}.{writer}"
    return Series(**axes._replace(stream=stream)._asdict(), source_key=key, attempt=attempt)
