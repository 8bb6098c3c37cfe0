"""Text and settings of the user's, made fit for the wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

MOST_DEPTH = 16
MOST_NAME = 200
MOST_TEXT = 100_000
"""Characters of a sample's prompt or output, and of a setting, that are kept."""


def clean(text: Any) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes a question mark."""
    string = text if isinstance(text, str) else str(text)
    return string if string.isascii() else string.encode("utf-8", "replace").decode()


def error_line(error: BaseException) -> str:
    """What kind of error it is and what it says, where it can say anything."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # noqa: BLE001 - the client boundary: a user's exception may fail to be text
        return kind


def name(text: Any) -> str:
    """Clean text of at most `MOST_NAME` characters: a role, an agent, a stream."""
    return clean(text)[:MOST_NAME]


def cut(text: Any, most: int = MOST_TEXT) -> str:
    """Clean text of at most `most` characters; what was cut off is said at its end."""
    string = clean(text)
    if len(string) <= most:
        return string
    return f"{string[:most]}… [cut by gradwatch: {len(string):,} characters]"


def plain(value: Any, depth: int = 0) -> Any:
    """A setting as numbers, text, lists and mappings: whatever else it is becomes its text."""
    if value is None or isinstance(value, (bool, float)):
        return value if value is None or isinstance(value, bool) else float(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str) or depth > MOST_DEPTH:
        return cut(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif type(value).__name__ == "Namespace":
        value = vars(value)
    if isinstance(value, Mapping):
        return {clean(key): plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one, depth + 1) for one in value]
    return cut(value)
