"""Reads `monitor.csv`, which the Monitor wrapper of stable-baselines3 and gym writes: a line an episode."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from gradwatch.importers.base import Row
from gradwatch.importers.head import head_text
from gradwatch.importers.json_flat import scalar
from gradwatch.importers.json_stream import BrokenJsonError, decode
from gradwatch.importers.number_text import number
from gradwatch.importers.source import Source


class MonitorCsv:
    """`#{"t_start": …, "env_id": …}`, then the columns r (return), l (length), t (seconds since the start)."""

    format = "monitor_csv"
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """A first line that is a JSON object behind '#'."""
        return head_text(head[:8]).startswith('#{"')

    def rows(self, source: Source) -> Iterator[Row]:
        """One row an episode, counted from one; a restart's header in the middle moves the clock, not the count."""
        names: list[str] = []
        start, episode, damaged = math.nan, 0, 0
        for line in source.lines():
            text = line.strip(" \t\r\0")
            if text.startswith("#"):
                settings = _header(text[1:], source)
                start = _start(settings, source)
                yield Row(values={}, config=settings, record=False)
                continue
            cells = text.split(",")
            values = _values(names, cells)
            if values and len(cells) == len(names):
                episode += 1
                yield Row(values, step=episode, wall_time=start + values.get("t", math.nan))
            elif not values and not text[:1].isdigit():
                names = [cell.strip().strip('"') for cell in cells] if text else names
            else:
                damaged += 1
        if damaged:
            source.warn(f"{damaged} lines have not {len(names)} cells like the header and were skipped")


def _values(names: list[str], cells: list[str]) -> dict[str, float]:
    found = ((name, number(cell)) for name, cell in zip(names, cells, strict=False))
    return {name: value for name, value in found if value is not None}


def _header(text: str, source: Source) -> dict[str, Any]:
    try:
        settings = decode(text, 0)[0]
    except (json.JSONDecodeError, BrokenJsonError) as error:
        source.warn(f"the header behind '#' cannot be read ({error}): the rows have no wall time")
        return {}
    return settings if isinstance(settings, dict) else {}


def _start(settings: dict[str, Any], source: Source) -> float:
    start = scalar(settings.get("t_start"), source.warn)
    return math.nan if start is None else start
