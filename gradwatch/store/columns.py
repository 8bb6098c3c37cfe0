"""Between records and DuckDB: numpy views of a Block's arrays on the way in, arrays rebuilt on the way out."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwatch.schema import Block, Curve, Point, Series, Trace

Column = npt.NDArray[Any]
Columns = dict[str, Column]


def joined(parts: Sequence[Columns]) -> Columns:
    """The parts below each other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def last_step(block: Block) -> tuple[int, int | None]:
    """The newest attempt among the block's points, and its highest step; (1, None) for an empty block."""
    if not block:
        return 1, None
    steps = _view(block.step)
    attempts = np.array([series.attempt for series in block.series], dtype=np.int64)
    if attempts.min() == attempts.max():
        return int(attempts[0]), int(steps.max())
    of_point = attempts[_view(block.index)]
    newest = of_point.max()
    return int(newest), int(steps[of_point == newest].max())


def point_columns(block: Block, ids: Sequence[int | None], after: int) -> Columns:
    """A non-empty block as columns named as the points table's, numbered from `after` + 1, without copying a value.

    DuckDB reads a numpy NaN as NULL, so the value's bits ride along as integers over the same memory, to restore it.
    """
    value = _view(block.value)
    series_ids = np.array(ids, dtype=np.int32)
    return {
        "series_id": series_ids[_view(block.index)],
        "sequence": np.arange(after + 1, after + 1 + len(block), dtype=np.int64),
        "step": _view(block.step),
        "wall_time": _view(block.wall_time),
        "value": value,
        "value_bits": value.view(np.int64),
        "flags": _view(block.flags),
    }


def no_columns() -> Columns:
    """The columns of a block without points."""
    kinds = {
        "series_id": np.int32,
        "sequence": np.int64,
        "step": np.int64,
        "wall_time": np.float64,
        "value": np.float64,
        "value_bits": np.int64,
        "flags": np.uint8,
    }
    return {name: np.empty(0, kind) for name, kind in kinds.items()}


def to_block(columns: Columns, series: Mapping[int, Series]) -> Block:
    """The block of the columns series_id, step, wall_time, value and flags; `series` names the ids."""
    block = Block()
    ids, index = np.unique(columns["series_id"], return_inverse=True)
    for series_id in ids.tolist():
        block.series_id(series[series_id])
    _fill(block.index, index.astype(np.int32))
    _fill(block.step, columns["step"])
    _fill(block.wall_time, columns["wall_time"])
    _fill(block.value, columns["value"])
    _fill(block.flags, columns["flags"])
    return block


def to_curves(columns: Columns, series: Mapping[int, Series]) -> list[Curve]:
    """The curves of the columns series_id, step, value and wall_time, which are sorted by series and step."""
    ids = columns["series_id"]
    starts = np.flatnonzero(np.diff(ids, prepend=-1)).tolist()
    return [
        Curve(
            series[int(ids[start])],
            columns["step"][start:end].tolist(),
            columns["value"][start:end].tolist(),
            columns["wall_time"][start:end].tolist(),
        )
        for start, end in pairwise([*starts, len(ids)])
    ]


def to_points(columns: Columns, series: Mapping[int, Series]) -> list[Point]:
    """The points of the columns series_id, step, value, wall_time and flags."""
    names = ("series_id", "step", "value", "wall_time", "flags")
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    return [Point(series[series_id], *rest) for series_id, *rest in rows]


def to_trace(series: Series, columns: Columns) -> Trace:
    """The trace of the columns step and value."""
    trace = Trace(series, array("q"), array("d"))
    _fill(trace.steps, columns["step"])
    _fill(trace.values, columns["value"])
    return trace


def transposed(rows: Iterable[tuple[object, ...]]) -> list[list[object]]:
    """The columns of a non-empty table of rows, as DuckDB's list parameters."""
    return [list(column) for column in zip(*rows, strict=True)]


def _view(column: array[Any]) -> Column:
    return np.frombuffer(column, dtype=column.typecode)


def _fill(column: array[Any], values: Column) -> None:
    column.frombytes(values.tobytes())
