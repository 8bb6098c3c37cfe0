"""The msgpack form of a batch, read as `wire.unpack` does, but faster where the table of series has come before."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import msgspec
import numpy as np

from gradwatch.collector.bodies import from_msgpack, without_points
from gradwatch.collector.tables import Tables
from gradwatch.errors import RefusedError
from gradwatch.schema import Block, Series
from gradwatch.wire import Batch, BesidePoints


class SentColumns(msgspec.Struct, frozen=True, kw_only=True):
    """`wire.Columns`, its table not read yet."""

    series: msgspec.Raw
    index: bytes
    step: bytes
    wall_time: bytes
    value: bytes
    flags: bytes


class SentBatch(BesidePoints, frozen=True, kw_only=True):
    """`wire.Batch` with such columns."""

    id: str
    columns: SentColumns | None = None


def decode_columns(body: bytes, tables: Tables) -> tuple[Batch, Block]:
    """The batch and its points; RefusedError says where the body is wrong."""
    sent = from_msgpack(body, SentBatch)
    return without_points(sent.id, sent), Block() if sent.columns is None else to_block(sent.columns, tables)


def to_block(columns: SentColumns, tables: Tables) -> Block:
    """The points. RefusedError where columns have different lengths, or name a series that is not in the table."""
    block = Block()
    raw = bytes(columns.series)
    block.series = tables.get(raw, lambda: from_msgpack(raw, list[Series]))
    count = len(columns.flags)
    for name in ("index", "step", "wall_time", "value", "flags"):
        _fill(name, getattr(block, name), getattr(columns, name), count)
    _check_index(block)
    return block


def _fill(name: str, column: array[Any], received: bytes, count: int) -> None:
    if len(received) != count * column.itemsize:
        raise RefusedError(
            f"columns.{name} has {len(received):,} bytes; {count:,} points (the length of columns.flags) of "
            f"{column.itemsize} bytes each need {count * column.itemsize:,}"
        )
    column.frombytes(received)
    if sys.byteorder == "big":
        column.byteswap()


def _check_index(block: Block) -> None:
    if not block:
        return
    index = np.frombuffer(block.index, dtype=np.int32)
    if not 0 <= index.min() <= index.max() < len(block.series):
        raise RefusedError(
            f"columns.index must lie within 0…{len(block.series) - 1}, the rows of columns.series; "
            f"it reaches from {index.min()} to {index.max()}"
        )
