"""What the beginning of a JSON text shows of its shape, so that the importers of JSON can tell their files apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gradwatch.importers.head import head_text
from gradwatch.importers.json_stream import BrokenJsonError, JsonStream
from gradwatch.importers.number_text import number

LONG_LIST = 16
"""A list with more numbers than this is a column, not a setting such as Adam's betas."""


@dataclass(slots=True)
class Outline:
    """The shape, as far as the beginning goes. It is shared between calls: do not change it."""

    opening: str = ""
    kinds: dict[str, str] = field(default_factory=dict)
    """Of an object, each key's kind: number, text, object, objects, numbers, column, columns, list, or cut."""
    first: dict[str, str] = field(default_factory=dict)
    """The kinds in the first object of the first list of objects."""
    closed: bool = False
    follows: str = ""
    """The character after the closed object; another `{` means one object a line."""

    def has(self, *kinds: str) -> int:
        """How many keys are of one of these kinds."""
        return sum(kind in kinds for kind in self.kinds.values())


@lru_cache(maxsize=2)
def outline(head: bytes) -> Outline:
    """The outline of a file that begins with `head`, which may be cut anywhere. Never raises."""
    found = Outline()
    stream = JsonStream([head_text(head)], lambda _: None)
    try:
        found.opening = stream.peek()
        if found.opening == "[":
            _list_kind(stream, found)
        elif found.opening == "{":
            for key in stream.members():
                found.kinds[key] = "cut"
                found.kinds[key] = _member_kind(stream, found, key)
            found.closed = True
            found.follows = stream.peek()
    except BrokenJsonError:
        return found
    return found


def _member_kind(stream: JsonStream, found: Outline, key: str) -> str:
    if stream.peek() == "[":
        return _list_kind(stream, found, key)
    return _value_kind(stream.small_value())


def _list_kind(stream: JsonStream, found: Outline, key: str = "") -> str:
    """Go past the list that comes next and say what it holds."""
    stream.expect("[")
    found.kinds[key] = "cut"
    if stream.peek() != "{":
        return _flat_list_kind(stream, found, key)
    found.kinds[key] = "objects"
    first: dict[str, str] = {} if found.first else found.first
    for name in stream.members():
        first[name] = "cut"
        if stream.peek() in ("[", "{"):
            stream.skip()
            first[name] = "nested"
        else:
            first[name] = _value_kind(stream.value())
    while stream.take(","):
        stream.skip()
    stream.expect("]")
    return "objects"


def _flat_list_kind(stream: JsonStream, found: Outline, key: str) -> str:
    count = 0
    while not stream.take("]"):
        value = stream.small_value()
        if not (value is None or isinstance(value, int | float)):
            found.kinds[key] = "list"
        count += 1
        if count > LONG_LIST and found.kinds[key] != "list":
            found.kinds[key] = "column"
        if not stream.take(",") and stream.peek() != "]":
            raise BrokenJsonError("cut")
    kind = found.kinds[key]
    return "numbers" if kind == "cut" and count > 1 else "list" if kind == "cut" else kind


def _value_kind(value: Any) -> str:
    if isinstance(value, dict):
        long = any(isinstance(inner, list) and is_column(inner) and len(inner) > LONG_LIST for inner in value.values())
        return "columns" if long else "object"
    if isinstance(value, int | float) or (isinstance(value, str) and number(value) is not None):
        return "number"
    return "text"


def is_column(values: list[Any]) -> bool:
    """Whether a list holds only numbers and nulls, and at least two entries."""
    return len(values) > 1 and all(value is None or isinstance(value, int | float) for value in values)
