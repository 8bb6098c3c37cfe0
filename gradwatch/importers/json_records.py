"""Reads JSON files that hold a whole history: a list of objects, or an object of equally long columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gradwatch.importers.base import Row
from gradwatch.importers.json_flat import flat, key_text, scalar
from gradwatch.importers.json_outline import Outline, is_column, outline
from gradwatch.importers.json_stream import BrokenJsonError, JsonStream
from gradwatch.importers.source import Source
from gradwatch.importers.wall_clock import wall_time

FOREIGN_KEYS = frozenset({"log_history", "cells", "nbformat"})
"""Files with their own importer, and notebooks."""
STEP_KEYS = frozenset(
    f"{name}{ending}"
    for name in ("step", "_step", "global_step", "iteration", "iter", "epoch", "episode", "timestep", "total_timestep")
    for ending in ("", "s")
)


class JsonList:
    """`[{"step": 1, "loss": 0.5}, …]`, or such lists under any key of an object, beside settings."""

    format = "json_list"
    rewritten = True

    def recognises(self, head: bytes) -> bool:
        """A list of objects with a number in the first; not the recorded cells of a notebook."""
        seen = outline(head)
        if "stream_name" in seen.first or not FOREIGN_KEYS.isdisjoint(seen.kinds):
            return False
        if not {"number", "nested", "cut"} & set(seen.first.values()):
            return False
        return seen.opening == "[" or (seen.opening == "{" and not seen.follows and seen.has("objects") > 0)

    def rows(self, source: Source) -> Iterator[Row]:
        """The objects of the list; of several lists those after the first get their key as prefix and as step axis."""
        stream = JsonStream(source.text(), source.warn)
        settings: dict[str, Any] = {}
        try:
            if stream.peek() == "[":
                yield from _records(stream, source, "")
            else:
                yield from _member_records(stream, source, settings)
        except BrokenJsonError as error:
            source.warn(f"{error}; what came before it was read")
        if settings:
            yield Row(values={}, config=settings, record=False)


def _member_records(stream: JsonStream, source: Source, settings: dict[str, Any]) -> Iterator[Row]:
    lists = 0
    for key in stream.members():
        if stream.peek() != "[":
            settings[key] = stream.small_value()
            continue
        read = 0
        for row in _records(stream, source, key_text(key) if lists else ""):
            read += 1
            yield row
        lists += read > 0


def _records(stream: JsonStream, source: Source, name: str) -> Iterator[Row]:
    for element in stream.elements():
        if not isinstance(element, dict):
            continue
        values = flat(element, source.warn).values
        clock = wall_time(values)
        if name:
            values = {key if key in STEP_KEYS else f"{name}/{key}": value for key, value in values.items()}
        yield Row(values, wall_time=clock, axis=name)


class JsonDictOfLists:
    """`{"loss": [0.5, 0.4, …], "reward": [1, 2, …]}`: a column a key; the place is the step unless a column is."""

    format = "json_dict_of_lists"
    rewritten = True

    def recognises(self, head: bytes) -> bool:
        """An object of number lists that outnumber its plain numbers or are long, and no list of objects."""
        seen = outline(head)
        if seen.opening != "{" or seen.follows or seen.has("objects") or not FOREIGN_KEYS.isdisjoint(seen.kinds):
            return False
        return seen.has("column", "columns") > 0 or _lists_outnumber(seen)

    def rows(self, source: Source) -> Iterator[Row]:
        """One row a place in the columns, then one row with the settings beside them."""
        stream = JsonStream(source.text(), source.warn)
        table = _Columns()
        try:
            for key in stream.members():
                table.add_member(stream, key_text(key), source)
        except BrokenJsonError as error:
            source.warn(f"{error}; what came before it was read")
        yield from table.rows(source)
        if table.settings:
            yield Row(values={}, config=table.settings, record=False)


def _lists_outnumber(seen: Outline) -> bool:
    lists = seen.has("numbers")
    return lists > 0 and seen.closed and lists >= seen.has("number", "list")


@dataclass(slots=True)
class _Columns:
    """The columns read so far, eight bytes a number, and where a column has a null."""

    columns: dict[str, array[float]] = field(default_factory=dict)
    holes: dict[str, set[int]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def add_member(self, stream: JsonStream, key: str, source: Source) -> None:
        """Read one member of the file's object as a column, as an object of columns, or as a setting."""
        if stream.peek() == "[":
            self.columns[key], self.holes[key] = array("d"), set()
            for element in stream.elements():
                self._append(key, element, source)
            return
        value = stream.small_value()
        nested = value if isinstance(value, dict) else {}
        columns = {name: inner for name, inner in nested.items() if isinstance(inner, list) and is_column(inner)}
        for name, inner in columns.items():
            path = f"{key}/{key_text(name)}"
            self.columns[path], self.holes[path] = array("d"), set()
            for element in inner:
                self._append(path, element, source)
        if not columns and value is not None:
            self.settings[key] = value

    def _append(self, key: str, element: Any, source: Source) -> None:
        value = scalar(element, source.warn)
        if value is None:
            self.holes[key].add(len(self.columns[key]))
        self.columns[key].append(math.nan if value is None else value)

    def rows(self, source: Source) -> Iterator[Row]:
        """One row a place; shorter columns are absent behind their end, and said."""
        lengths = {len(column) for column in self.columns.values() if len(column) > 1}
        if len(lengths) > 1:
            source.warn(f"the columns have {min(lengths)} to {max(lengths)} entries: all were counted from the first")
        stepped = any(key in STEP_KEYS and _rises(column) for key, column in self.columns.items())
        for place in range(max(lengths, default=0)):
            values = {
                key: column[place] for key, column in self.columns.items() if place < len(column) and place not in self.holes[key]
            }
            yield Row(values, step=None if stepped else place + 1, wall_time=wall_time(values))


def _rises(column: array[float]) -> bool:
    """Whether a column never falls, as a step axis does and episode lengths called `steps` do not."""
    return len(column) > 1 and all(column[place] <= column[place + 1] for place in range(len(column) - 1))
