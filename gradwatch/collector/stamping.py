"""Whose attempt a batch belongs to is the collector's knowledge: it writes the number into what the batch holds."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeVar

import msgspec

from gradwatch.errors import RefusedError
from gradwatch.schema import Block, Checkpoint, Event, Sample, Series

Stamped = TypeVar("Stamped", Checkpoint, Event)


def stamped(block: Block, attempt: int) -> Block:
    """The block with every series in `attempt`; columns are shared, not copied. RefusedError where two series become one."""
    if all(one.attempt == attempt for one in block.series):
        return block
    result = Block()
    for series in block.series:
        result.series_id(_of_attempt(series, attempt))
    if len(result.series) != len(block.series):
        raise RefusedError(
            "the batch lists a series twice, under two attempts: the collector sets the attempt, list each series once"
        )
    result.index, result.step, result.wall_time = block.index, block.step, block.wall_time
    result.value, result.flags = block.value, block.flags
    return result


def dated(records: list[Stamped], attempt: int, now: float) -> list[Stamped]:
    """The records with `attempt` in place of 0, and `now` in place of no wall time."""
    return [
        msgspec.structs.replace(one, attempt=one.attempt or attempt, wall_time=one.wall_time if is_time(one.wall_time) else now)
        for one in records
    ]


def is_time(seconds: float) -> bool:
    """Whether it says when: 0 and NaN stand for a time that is not known, and no clock shows an infinite one."""
    return seconds != 0 and math.isfinite(seconds)


def placed(samples: list[Sample], attempt: int) -> list[Sample]:
    """The samples with `attempt` in place of 0."""
    return [one if one.attempt else msgspec.structs.replace(one, attempt=attempt) for one in samples]


@lru_cache(maxsize=100_000)
def _of_attempt(series: Series, attempt: int) -> Series:
    return msgspec.structs.replace(series, attempt=attempt)
