"""What is measured: series, points, and blocks of points.

A *series* is one measured quantity of one role, agent, policy, module group and rank in one stream of one attempt. Points
travel in a `Block`, a columnar batch on the standard library's arrays, so that a training machine needs no numpy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

FILTERED = 1
"""Point flag: the framework logged a filtered value (Hugging Face's `logging_nan_inf_filter`), not the raw one."""
FROM_NULL = 2
"""Point flag: the log holds a null where its writer had a non-finite value; NaN stands in for it."""

NO_RANK = -1


class Series(msgspec.Struct, frozen=True):
    """What a point measures. Empty axes do not apply; `source_key` is the key as its framework wrote it."""

    metric: str
    source_key: str = ""
    stream: str = "train"
    attempt: int = 1
    stat: str = ""
    role: str = ""
    agent: str = ""
    policy: str = ""
    scope: str = ""
    rank: int = NO_RANK


class Point(msgspec.Struct, frozen=True):
    """One value of one series. `wall_time` is in Unix seconds, NaN where unknown; `value` keeps NaN and infinities."""

    series: Series
    step: int
    value: float
    wall_time: float = float("nan")
    flags: int = 0


class Block:
    """A columnar batch of points in the order in which they were logged.

    `series` is the table of the block's series; row i is the point (series[index[i]], step[i], wall_time[i], value[i], flags[i]).
    """

    __slots__ = ("_of_series", "flags", "index", "series", "step", "value", "wall_time")

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._of_series: dict[Series, int] = {}
        self.index = array("i")
        self.step = array("q")
        self.wall_time = array("d")
        self.value = array("d")
        self.flags = array("B")

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Point]:
        for i, s, v, w, f in zip(self.index, self.step, self.value, self.wall_time, self.flags, strict=True):
            yield Point(self.series[i], s, v, w, f)

    def series_id(self, series: Series) -> int:
        """The position of `series` in this block's table, added if new."""
        known = self._of_series.get(series)
        if known is None:
            known = self._of_series[series] = len(self.series)
            self.series.append(series)
        return known

    def add(self, series: Series, step: int, value: float, wall_time: float = float("nan"), flags: int = 0) -> None:
        """Append one point."""
        self.add_id(self.series_id(series), step, value, wall_time, flags)

    def add_id(self, series_id: int, step: int, value: float, wall_time: float, flags: int = 0) -> None:
        """Append one point of a series that `series_id` has named; the fast path."""
        self.index.append(series_id)
        self.step.append(step)
        self.wall_time.append(wall_time)
        self.value.append(value)
        self.flags.append(flags)


class Curve(NamedTuple):
    """One series as it is read: the last write of each step, ascending by step; all columns have one length."""

    series: Series
    steps: list[int]
    values: list[float]
    wall_times: list[float]


class Trace(NamedTuple):
    """One series as arrays, 16 bytes a step: the last write of each step, ascending by step."""

    series: Series
    steps: array[int]
    values: array[float]


class Span(NamedTuple):
    """A series that has points, and the lowest and highest step among them."""

    series: Series
    first_step: int
    last_step: int


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which curves to read; None and the defaults leave nothing out.

    With `buckets` > 0 the steps are cut into that many ranges of equal width, and of each range and curve the first, last, smallest
    and largest value and the first and last non-finite one are kept: no spike and no stretch of NaN is lost.
    """

    metrics: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    stream: str | None = None
    attempt: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    buckets: int = 0
