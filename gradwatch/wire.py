"""Wire v1: what a client and a collector say to each other, as msgpack (binary columns) or JSON (steps).

A batch travels as msgpack with its points in `columns`, which is what our client sends, or as JSON with its points in `series`
and `steps`, which anybody can send with curl. Everything else of a batch is the same in both. JSON has no NaN: there a value is a
number, `"NaN"`, `"Infinity"`, `"-Infinity"`, or null where the series has no value at that step.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

import msgspec

from gradwatch.errors import RefusedError
from gradwatch.schema import Advice, Block, Checkpoint, Event, Sample, Series, StoredFinding

VERSION = "v1"
MSGPACK = "application/msgpack"
JSON = "application/json"
PROBLEM = "application/problem+json"

ALLOW, MUST, NEVER = RESUMES = ("allow", "must", "never")


class OpenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A process announces itself: it creates a run, or joins it.

    `process` names the process for as long as it lives, and a second request with it changes nothing. Processes with one `launch`
    (the ranks and workers of one job start) share an attempt, until a rank of theirs comes again as another process: that is a
    restart. A process without a launch opens an attempt of its own. `resume` says whether the run may, must or must never exist
    already.
    """

    id: str
    process: str
    name: str = ""
    project: str = "default"
    launch: str = ""
    rank: int | None = None
    resume: str = ALLOW
    source: str = ""
    format: str = ""
    config: dict[str, Any] = {}
    roles: dict[str, Any] = {}
    started: float = 0.0


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The run's name and attempt as the collector has them, the page to look at, and how many points the attempt has."""

    run: str
    name: str
    attempt: int
    created: bool
    page: str = ""
    points: int = 0


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """A block as it travels: a table of series and five little-endian columns of one length.

    `index` int32 (row of `series`), `step` int64, `wall_time` and `value` float64, `flags` uint8.
    """

    series: list[Series]
    index: bytes
    step: bytes
    wall_time: bytes
    value: bytes
    flags: bytes


class BesidePoints(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch holds beside its id and points, in every form of it."""

    process: str = ""
    samples: list[Sample] = []
    checkpoints: list[Checkpoint] = []
    events: list[Event] = []
    status: str = ""
    since: float = 0.0


class Batch(BesidePoints, frozen=True, kw_only=True):
    """What one request adds to a run. `id` makes a retry free: a batch that was committed before adds nothing.

    `process` is the sender's, as in `OpenRun`, and picks the attempt; without it the run's newest attempt is meant. `status`
    (finished, interrupted, failed) ends the process's part in its attempt. `since` is the `cursor` of the last ack.
    """

    id: str
    columns: Columns | None = None


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """The batch is durable. `points` counts what it added, `sequence` is the run's last point, `duplicate` says that it was known.

    `findings` are those that changed after the batch's `since`, up to `cursor`; they may concern earlier batches, since detectors
    run behind the commit. `advice` holds for now.
    """

    sequence: int
    points: int
    duplicate: bool = False
    cursor: float = 0.0
    findings: list[StoredFinding] = []
    advice: list[Advice] = []


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as RFC 9457 writes it: what is wrong, where, and what to do."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    instance: str = ""


def pack(block: Block) -> Columns:
    """The block's columns as bytes."""
    return Columns(
        series=block.series,
        index=_bytes(block.index),
        step=_bytes(block.step),
        wall_time=_bytes(block.wall_time),
        value=_bytes(block.value),
        flags=_bytes(block.flags),
    )


def unpack(columns: Columns) -> Block:
    """The block of received columns. RefusedError where they have different lengths or name a series that is not in the table."""
    block = Block()
    count = len(columns.flags)
    for series in columns.series:
        block.series_id(series)
    if len(block.series) != len(columns.series):
        raise RefusedError("columns.series lists a series twice: list each once and point to it from columns.index")
    for name in ("index", "step", "wall_time", "value", "flags"):
        column: array[Any] = getattr(block, name)
        received: bytes = getattr(columns, name)
        if len(received) != count * column.itemsize:
            raise RefusedError(
                f"columns.{name} has {len(received):,} bytes; {count:,} points (the length of columns.flags) of "
                f"{column.itemsize} bytes each need {count * column.itemsize:,}"
            )
        column.frombytes(received)
        if sys.byteorder == "big":
            column.byteswap()
    if count and not 0 <= min(block.index) <= max(block.index) < len(block.series):
        raise RefusedError(
            f"columns.index must lie within 0…{len(block.series) - 1}, the rows of columns.series; "
            f"it reaches from {min(block.index)} to {max(block.index)}"
        )
    return block


def _bytes(column: array[Any]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
