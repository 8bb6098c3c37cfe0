"""The wall clock of a record, where one of its values is a Unix time."""

from __future__ import annotations

import math
from collections.abc import Mapping

CLOCK_KEYS = ("_timestamp", "timestamp", "wall_time", "time")
EARLIEST, LATEST = 1e9, 1e11
"""Seconds since 1970: 2001 to 5138. Milliseconds, elapsed seconds and step counts called `time` lie outside."""


def wall_time(values: Mapping[str, float]) -> float:
    """The first of `CLOCK_KEYS` that is a plausible Unix time in seconds; NaN without one."""
    for key in CLOCK_KEYS:
        if EARLIEST < values.get(key, 0.0) < LATEST:
            return values[key]
    return math.nan
