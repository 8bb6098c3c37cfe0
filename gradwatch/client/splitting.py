"""The size of a batch, and a batch that a collector finds too large as two halves."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from gradwatch.schema import Block
from gradwatch.wire import Batch, Columns, pack, unpack

T = TypeVar("T")


def points_of(batch: Batch) -> int:
    """The number of points of a batch."""
    return len(batch.columns.flags) if batch.columns is not None else 0


def size_of(batch: Batch) -> int:
    """The number of points, samples, checkpoints and events of a batch."""
    return points_of(batch) + len(batch.samples) + len(batch.checkpoints) + len(batch.events)


def number_of(batch: Batch) -> int:
    """The number of a batch, or of the batch that it is a part of, among its process's."""
    return int(batch.id.rpartition("-")[2].partition(".")[0])


def steps_of(batch: Batch) -> tuple[int, int] | None:
    """The lowest and the highest step among the points and samples of a batch."""
    steps = list(unpack(batch.columns).step) if batch.columns is not None else []
    steps += [one.step for one in batch.samples]
    return (min(steps), max(steps)) if steps else None


def halves(batch: Batch) -> tuple[Batch, Batch] | None:
    """Two batches with the content of one, None where it is a single thing. Their ids follow from its own: a retry is free."""
    if size_of(batch) < 2:
        return None
    points = _cut(batch.columns)
    samples, checkpoints, events = _half(batch.samples), _half(batch.checkpoints), _half(batch.events)
    first, second = (
        replace(
            batch,
            id=f"{batch.id}.{half}",
            columns=points[half],
            samples=samples[half],
            checkpoints=checkpoints[half],
            events=events[half],
            status=batch.status if half else "",
        )
        for half in (0, 1)
    )
    return first, second


def _half(rows: list[T]) -> tuple[list[T], list[T]]:
    middle = (len(rows) + 1) // 2
    return rows[:middle], rows[middle:]


def _cut(columns: Columns | None) -> tuple[Columns | None, Columns | None]:
    if columns is None:
        return None, None
    parts = (Block(), Block())
    middle = (len(columns.flags) + 1) // 2
    for at, point in enumerate(unpack(columns)):
        parts[at >= middle].add(point.series, point.step, point.value, point.wall_time, point.flags)
    first, second = (pack(part) if len(part) else None for part in parts)
    return first, second
