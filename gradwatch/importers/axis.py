"""Rows to blocks: which value is the step, and what a step axis that ties, interleaves, restarts or is missing means.

Decided on the first rows (`LOOKAHEAD`; fewer for a file that has an axis a tag) and then row by row, so that a log of any length
is read in bounded memory:

- the step is what the format says, else the first key of `STEP_KEYS` that behaves like one, else the row's number;
- where steps run backwards or repeat all the time, several writers share the file: the k-th writer of a step becomes a stream of
  its own (`train.2`);
- where they run backwards now and then, the run was restarted: a new attempt;
- a single row that lags (a last evaluation under an older step) stays in its attempt.

Of a file that still grows the axis can be asked to `settle` before the first rows are all there. It then answers as it would if
the file ended here, and says so (MisjudgedError) where later rows refute it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from gradwatch.importers.attempts import LARGEST_STEP, Attempts, Placed, Writers, writers_interleave
from gradwatch.importers.base import Row
from gradwatch.importers.source import MisjudgedError, Source

LOOKAHEAD = 256
TAG_LOOKAHEAD = 32
MAX_AXES = 50_000
MAX_RUNS = 500
STEP_KEYS = tuple(
    "step global_step _step training/global_step trainer/global_step train/global_step train/step current_steps iteration iter "
    "update timestep timesteps num_timesteps total_timesteps time/total_timesteps total/steps total_steps env_steps frames "
    "time/iterations training_iteration episode episodes epoch".split()
)
SAME_STEP = ("step", "iter", "iteration", "global_step", "_step")
"""Names of optimizer steps that a program may mix: nanoGPT trains by `iter` and evaluates by `step`."""
_RANK = {key: at for at, key in enumerate(STEP_KEYS)}
_COARSE = frozenset(("epoch", "episode", "episodes"))


def place(rows: Iterable[Row], source: Source) -> Iterator[Placed]:
    """Give every row of one file its step, attempt and writer."""
    return Axes(source).place(rows)


class Axes:
    """The step axes of one file; each run and each axis of the file is judged on its own."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._axes: dict[tuple[str, str], _Axis] = {}
        self._unsure: dict[tuple[str, str], _Axis] = {}
        self._runs: set[str] = set()

    def place(self, rows: Iterable[Row]) -> Iterator[Placed]:
        """Every row with its place, in file order but for those that wait for a decision."""
        axes = self._axes
        for row in rows:
            axis = axes.get((row.run, row.axis)) or self._open(row)
            if axis is not None:
                yield from axis.take(row)
        for axis in axes.values():
            yield from axis.finish()

    def settle(self) -> Iterator[Placed]:
        """The rows that wait for a decision, by what is known so far. MisjudgedError where an earlier answer is refuted."""
        for key, axis in list(self._unsure.items()):
            yield from axis.settle()
            if axis.sure:
                del self._unsure[key]

    def _open(self, row: Row) -> _Axis | None:
        key = (row.run, row.axis)
        if len(self._axes) >= MAX_AXES or (row.run not in self._runs and len(self._runs) >= MAX_RUNS):
            self._source.warn(f"the log has more than {MAX_RUNS:,} runs or {MAX_AXES:,} tags: the later ones were left out")
            return None
        self._runs.add(row.run)
        axis = self._axes[key] = self._unsure[key] = _Axis(self._source, row.run, TAG_LOOKAHEAD if row.axis else LOOKAHEAD)
        return axis


def step_key(rows: list[Row]) -> str | None:
    """The key that serves as step: integers in at least half of the rows, not constant, and rising more often than falling."""
    metric_rows = [row for row in rows if row.values]
    candidates = {key for row in metric_rows for key in row.values if key.lower() in _RANK}
    fit = []
    for key in sorted(candidates, key=lambda name: _RANK[name.lower()]):
        steps = [row.values[key] for row in metric_rows if key in row.values]
        if 2 * len(steps) >= len(metric_rows) and _is_axis(steps, key):
            fit.append((key, all(later > earlier for earlier, later in pairwise(steps))))
    # a step that starts again with every epoch gives way to one that always rises
    return next((key for key, rising in fit if rising), fit[0][0] if fit else None)


def _is_axis(steps: list[float], key: str) -> bool:
    if not all(math.isfinite(step) and step == int(step) and abs(step) < LARGEST_STEP for step in steps):
        return False
    if len(steps) < 3:
        return True
    rises = sum(later > earlier for earlier, later in pairwise(steps))
    falls = sum(later < earlier for earlier, later in pairwise(steps))
    ties = len(steps) - 1 - rises - falls
    if key.lower() in _COARSE and ties > rises:  # rows count something finer within it
        return False
    return rises > 0 and rises >= falls


class _Decision(NamedTuple):
    """What an axis is, and whether its format says every step, so that no key is needed."""

    key: str | None
    interleaved: bool
    said: bool

    def agrees(self, other: _Decision) -> bool:
        """Whether both give the rows that they were made on the same places."""
        return self.interleaved == other.interleaved and (self.key == other.key or (self.said and other.said))


class _Axis:
    """One step axis of one file."""

    def __init__(self, source: Source, run: str, lookahead: int) -> None:
        self._source = source
        self._lookahead = lookahead
        self._where = f" of run {run!r}" if run else ""
        self._ahead: list[Row] | None = []
        self._early: list[Row] | None = None
        self._confirmed = 0
        self._decision = _Decision(None, False, False)
        self._steps = _Steps(None)
        self._order: Attempts | Writers = Attempts(source, self._where)

    @property
    def sure(self) -> bool:
        """Whether the decision has been made, on as many rows as it takes."""
        return self._ahead is None and self._early is None

    def take(self, row: Row) -> Iterator[Placed]:
        if self._ahead is None:
            if self._early is not None:
                self._remember(row, self._early)
            yield from self._order.take(row, self._steps.of(row))
            return
        self._ahead.append(row)
        if len(self._ahead) >= self._lookahead:
            yield from self._decide()

    def settle(self) -> Iterator[Placed]:
        if self._early is not None:
            self._confirm(self._early)
        elif self._ahead and any(row.values for row in self._ahead):
            self._early = copies(self._ahead)
            self._confirmed = len(self._early)
            yield from self._decide()

    def finish(self) -> Iterator[Placed]:
        if self._early is not None:
            self._confirm(self._early)
        yield from self._decide()
        yield from self._order.finish()

    def _decide(self) -> Iterator[Placed]:
        rows, self._ahead = self._ahead or [], None
        if not rows:
            return
        key = step_key(rows)
        said = all(row.step is not None for row in rows)
        if key is None and not any(row.step is not None for row in rows) and any(row.values for row in rows):
            self._source.warn(f"no step in the log{self._where}: steps are the rows' numbers")
        self._steps = _Steps(key)
        steps = [self._steps.of(row) for row in rows]
        self._decision = _Decision(key, writers_interleave(rows, steps), said)
        if self._decision.interleaved:
            self._source.warn(f"several writers share the step axis{self._where}: each further writer is a stream of its own")
            self._order = Writers()
        for row, step in zip(rows, steps, strict=True):
            yield from self._order.take(row, step)

    def _remember(self, row: Row, early: list[Row]) -> None:
        early += copies([row])
        if len(early) >= self._lookahead:
            self._confirm(early)
            self._early = None

    def _confirm(self, early: list[Row]) -> None:
        """Decide again on all rows so far, and compare."""
        if len(early) == self._confirmed:
            return
        self._confirmed = len(early)
        rows = copies(early)
        key = step_key(rows)
        said = all(row.step is not None for row in rows)
        steps = _Steps(key)
        now = _Decision(key, writers_interleave(rows, [steps.of(row) for row in rows]), said)
        if not now.agrees(self._decision):
            raise MisjudgedError(f"its first {len(early)} rows show another step axis{self._where} than the rows before them did")


def copies(rows: list[Row]) -> list[Row]:
    """The rows as they are; placing one takes the step out of its values."""
    return [replace(row, values=dict(row.values)) for row in rows]


class _Steps:
    """The step of one row after the other: what the format says, else the value under `key`, else a count."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._last: int | None = None

    def of(self, row: Row) -> int:
        step = row.step
        if step is None and self._key is not None:
            step = _said(row, self._key)
        if step is None:
            if self._key is None and row.values:
                step = 1 if self._last is None else self._last + 1
            else:
                step = 0 if self._last is None else self._last
        self._last = step if row.values or self._last is not None else None
        return step


def _said(row: Row, key: str) -> int | None:
    """The step among the row's values; a row without the axis' key may use another name for the same thing."""
    if key not in row.values and key in SAME_STEP:
        key = next((other for other in SAME_STEP if other in row.values), key)
    value = row.values.get(key)
    if value is None or not math.isfinite(value) or abs(value) >= LARGEST_STEP:
        return None
    if value == int(value):  # said by the step itself; anything else is kept as a metric
        del row.values[key]
    return int(value)
