"""Rows to blocks: which value is the step, and what a step axis that ties, interleaves, restarts or is missing means.

Decided on the first rows (`LOOKAHEAD`; fewer for a file that has an axis a tag) and then row by row, so that a log of any length
is read in bounded memory:

- the step is what the format says, else the first key of `STEP_KEYS` that behaves like one, else the row's number;
- where steps run backwards or repeat all the time, several writers share the file: the k-th writer of a step becomes a stream of
  its own (`train.2`);
- where they run backwards now and then, the run was restarted: a new attempt;
- a single row that lags (a last evaluation under an older step) stays in its attempt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from gradwatch.importers.base import Row
from gradwatch.importers.source import Source

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
_LARGEST_STEP = 2**62
_REMEMBERED_STEPS = 100_000


class Placed:
    """A row with its place: step, attempt and writer (1 = the only or first one)."""

    __slots__ = ("attempt", "row", "step", "writer")

    def __init__(self, row: Row, step: int, attempt: int, writer: int) -> None:
        self.row, self.step, self.attempt, self.writer = row, step, attempt, writer


def place(rows: Iterable[Row], source: Source) -> Iterator[Placed]:
    """Give every row of one file its step, attempt and writer; each run and each axis of the file is judged on its own."""
    axes: dict[tuple[str, str], _Axis] = {}
    runs: set[str] = set()
    for row in rows:
        key = (row.run, row.axis)
        axis = axes.get(key)
        if axis is None:
            if len(axes) >= MAX_AXES or (row.run not in runs and len(runs) >= MAX_RUNS):
                source.warn(f"the log has more than {MAX_RUNS:,} runs or {MAX_AXES:,} tags: the later ones were left out")
                continue
            runs.add(row.run)
            axis = axes[key] = _Axis(source, row.run, TAG_LOOKAHEAD if row.axis else LOOKAHEAD)
        yield from axis.take(row)
    for axis in axes.values():
        yield from axis.finish()


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
    if not all(math.isfinite(step) and step == int(step) and abs(step) < _LARGEST_STEP for step in steps):
        return False
    if len(steps) < 3:
        return True
    rises = sum(later > earlier for earlier, later in pairwise(steps))
    falls = sum(later < earlier for earlier, later in pairwise(steps))
    ties = len(steps) - 1 - rises - falls
    if key.lower() in _COARSE and ties > rises:  # rows count something finer within it
        return False
    return rises > 0 and rises >= falls


class _Axis:
    """One step axis of one file."""

    def __init__(self, source: Source, run: str, lookahead: int) -> None:
        self._source = source
        self._lookahead = lookahead
        self._where = f" of run {run!r}" if run else ""
        self._ahead: list[Row] | None = []
        self._key: str | None = None
        self._last: int | None = None
        self._order: _Attempts | _Writers = _Attempts(source, self._where)

    def take(self, row: Row) -> Iterator[Placed]:
        if self._ahead is None:
            yield from self._order.take(row, self._step(row))
            return
        self._ahead.append(row)
        if len(self._ahead) >= self._lookahead:
            yield from self._decide()

    def finish(self) -> Iterator[Placed]:
        yield from self._decide()
        yield from self._order.finish()

    def _decide(self) -> Iterator[Placed]:
        rows, self._ahead = self._ahead or [], None
        self._key = step_key(rows)
        if rows and self._key is None and not any(row.step is not None for row in rows) and any(row.values for row in rows):
            self._source.warn(f"no step in the log{self._where}: steps are the rows' numbers")
        steps = [self._step(row) for row in rows]
        if writers_interleave(rows, steps):
            self._source.warn(f"several writers share the step axis{self._where}: each further writer is a stream of its own")
            self._order = _Writers()
        for row, step in zip(rows, steps, strict=True):
            yield from self._order.take(row, step)

    def _step(self, row: Row) -> int:
        step = row.step
        if step is None and self._key is not None:
            step = self._said(row, self._key)
        if step is None:
            if self._key is None and row.values:
                step = 1 if self._last is None else self._last + 1
            else:
                step = 0 if self._last is None else self._last
        self._last = step if row.values or self._last is not None else None
        return step

    def _said(self, row: Row, key: str) -> int | None:
        """The step among the row's values; a row without the axis' key may use another name for the same thing."""
        if key not in row.values and key in SAME_STEP:
            key = next((other for other in SAME_STEP if other in row.values), key)
        value = row.values.get(key)
        if value is None or not math.isfinite(value) or abs(value) >= _LARGEST_STEP:
            return None
        if value == int(value):  # said by the step itself; anything else is kept as a metric
            del row.values[key]
        return int(value)


def writers_interleave(rows: list[Row], steps: list[int]) -> bool:
    """Whether steps fall or repeat so often, and by so little, that several writers must share the axis."""
    seen: dict[str, list[int]] = {}
    backwards: list[int] = []
    ties = restarts = 0
    for row, step in zip(rows, steps, strict=True):
        if not row.values:
            continue
        before = seen.setdefault(_kind(row), [])
        if before and step < before[-1]:
            backwards.append(sum(earlier > step for earlier in before[-64:]))
            restarts += step == before[0]
        ties += bool(before) and step == before[-1]
        before.append(step)
    often = len(backwards) + ties >= max(4, 0.15 * len(steps))
    if not often or not backwards:
        return often
    return median(backwards) <= 8 and restarts < 0.8 * len(backwards)


def _kind(row: Row) -> str:
    """What kind of record a row is: its first key tells a training step from an evaluation."""
    return next(iter(row.values), "")


class _Attempts:
    """Steps that fall open a new attempt, unless the next row goes on as if nothing had happened.

    Rows of another kind (told by their first key) may lag: an evaluation is often written late.
    """

    def __init__(self, source: Source, where: str) -> None:
        self._source, self._where = source, where
        self._attempt = 1
        self._top = -_LARGEST_STEP
        self._tops: dict[str, int] = {}
        self._held: tuple[Row, int] | None = None

    def take(self, row: Row, step: int) -> Iterator[Placed]:
        if not row.values:
            yield Placed(row, step, self._attempt, 1)
            return
        if self._held is not None:
            held_row, held_step = self._held
            self._held = None
            if step <= self._top:
                self._restart(held_step)
            yield Placed(held_row, held_step, self._attempt, 1)
        kind = _kind(row)
        if step < self._tops.get(kind, step):
            self._held = (row, step)
            return
        self._top = max(step, self._top)
        self._tops[kind] = step
        yield Placed(row, step, self._attempt, 1)

    def _restart(self, step: int) -> None:
        self._source.warn(
            f"the step axis{self._where} runs back from {self._top} to {step}: read as a restart, attempt {self._attempt + 1}"
        )
        self._attempt += 1
        self._top = step
        self._tops = {}

    def finish(self) -> Iterator[Placed]:
        if self._held is not None:
            yield Placed(*self._held, self._attempt, 1)
            self._held = None


class _Writers:
    """The k-th row of the same keys at a step is the k-th writer's."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, tuple[str, ...]]] = Counter()

    def take(self, row: Row, step: int) -> Iterator[Placed]:
        record = (step, tuple(row.values))
        self._seen[record] += 1
        if len(self._seen) > _REMEMBERED_STEPS:
            del self._seen[next(iter(self._seen))]
        yield Placed(row, step, 1, self._seen[record])

    def finish(self) -> Iterator[Placed]:
        return iter(())
