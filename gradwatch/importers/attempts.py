"""Rows with a step to attempts and writers: what steps that run backwards or repeat mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from gradwatch.importers.base import Row
from gradwatch.importers.source import Source

LARGEST_STEP = 2**62
_REMEMBERED_STEPS = 100_000


class Placed:
    """A row with its place: step, attempt and writer (1 = the only or first one)."""

    __slots__ = ("attempt", "row", "step", "writer")

    def __init__(self, row: Row, step: int, attempt: int, writer: int) -> None:
        self.row, self.step, self.attempt, self.writer = row, step, attempt, writer


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


class Attempts:
    """Steps that fall open a new attempt, unless the next row goes on as if nothing had happened.

    Rows of another kind (told by their first key) may lag: an evaluation is often written late.
    """

    def __init__(self, source: Source, where: str) -> None:
        self._source, self._where = source, where
        self._attempt = 1
        self._top = -LARGEST_STEP
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


class Writers:
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
