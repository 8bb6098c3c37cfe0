"""The JSON form of a batch: the values of a list of series, step by step. Pure."""

from __future__ import annotations

from array import array
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gradwatch.collector.bodies import without_points
from gradwatch.collector.json_text import from_json
from gradwatch.collector.tables import Tables
from gradwatch.errors import RefusedError
from gradwatch.metrics.keys import resolve
from gradwatch.schema import Block, Series
from gradwatch.wire import Batch, BesidePoints

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class SeriesRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A series by a framework's `key`, by its axes, or by both: what is said of an axis goes before what the key says."""

    key: str = ""
    metric: str | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    stat: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    policy: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    rank: int | UnsetType = UNSET


class StepRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step: a value for each series, null where it has none; `wall_time` in Unix seconds, where it is known."""

    step: Int64
    value: list[float | str | None]
    wall_time: float = float("nan")


class StepBatch(BesidePoints, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch as JSON. With an `id` it may be sent again and adds nothing then. A series is a framework's key, or an object."""

    id: str = ""
    series: list[str | SeriesRow] = msgspec.field(default_factory=list)
    steps: list[StepRow] = msgspec.field(default_factory=list)


def decode_steps(body: bytes, tables: Tables) -> tuple[Batch, Block]:
    """The batch and its points; RefusedError says where the body is wrong."""
    sent = from_json(body, StepBatch)
    return without_points(sent.id, sent), to_block(sent, tables)


def to_block(sent: StepBatch, tables: Tables) -> Block:
    """The points of the batch, step by step."""
    block = Block()
    block.series = tables.get(tuple(sent.series), lambda: [to_series(one) for one in sent.series])
    width = len(block.series)
    every = array("i", range(width))
    for at, row in enumerate(sent.steps):
        if len(row.value) != width:
            raise RefusedError(f"steps[{at}].value has {len(row.value)} values: series lists {width}, send null for one without")
        _add(block, at, row, every)
    return block


def to_series(row: str | SeriesRow) -> Series:
    """The series that a key or an object means."""
    if isinstance(row, str):
        row = SeriesRow(key=row)
    given = {name: value for name in _AXES if (value := getattr(row, name)) is not UNSET}
    if not row.key and not given.get("metric"):
        raise RefusedError("an object in series needs a key or a metric")
    axes = resolve(row.key)._asdict() if row.key else {}
    return Series(source_key=row.key, **axes | given)


_AXES = ("metric", "stream", "stat", "role", "agent", "policy", "scope", "rank")


def _add(block: Block, at: int, row: StepRow, every: array[int]) -> None:
    plain: list[Any] = row.value
    try:
        index, values = every, array("d", plain)
    except TypeError:
        index, values = _present(at, row.value)
    count = len(values)
    block.index.extend(index)
    block.step.extend(array("q", [row.step]) * count)
    block.wall_time.extend(array("d", [row.wall_time]) * count)
    block.value.extend(values)
    block.flags.frombytes(bytes(count))


def _present(at: int, row: list[float | str | None]) -> tuple[array[int], array[float]]:
    """The positions that have a value, and the values."""
    index, values = array("i"), array("d")
    for position, value in enumerate(row):
        if value is not None:
            index.append(position)
            values.append(_number(at, position, value) if isinstance(value, str) else value)
    return index, values


def _number(at: int, position: int, name: str) -> float:
    if name not in NUMBERS:
        raise RefusedError(f"steps[{at}].value[{position}] is {name[:40]!r}: a number, {', '.join(NUMBERS)} or null is allowed")
    return NUMBERS[name]
