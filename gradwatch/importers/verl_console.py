"""verl's console lines, `step:7 - actor/pg_loss:0.250 - …`, whose keys may hold spaces and colons (`verl_console`)."""

from __future__ import annotations

import re

from gradwatch.importers.base import Row
from gradwatch.importers.number_text import number

_HEAD = re.compile(r"(?<![\w/.:-])step:(\d{1,15}) - ")
_LEADING = re.compile(r"(?:np\.\w{1,12}\([-+.\w]{1,40}\)|[-+]?(?:\d[\d.]{0,40}(?:[eE][-+]?\d{1,4})?|nan|inf))(?=\s|$)", re.I)
MAX_KEYS = 10_000


def read_verl_line(segment: str) -> Row | None:
    """The row of a segment that holds a step line, after a bar or not; a damaged pair is left out."""
    head = _HEAD.search(segment)
    if head is None:
        return None
    step = int(head[1])
    values: dict[str, float] = {}
    for part in segment[head.end() :].split(" - ", MAX_KEYS):
        key, _, text = part.rpartition(":")
        value = _value(text)
        if key and value is not None:
            values[key.strip()] = value
    return Row({"step": float(step), **values}, step=step) if values else None


def _value(text: str) -> float | None:
    if text[:11] == "np.float64(" and text[-1] == ")":
        text = text[11:-1]
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        value = number(text)
    if value is None and (found := _LEADING.match(text)) is not None:
        return number(found[0])
    return value


class VerlReader:
    """Reads step lines."""

    format = "verl_console"

    def read(self, segment: str) -> list[Row]:
        """The row of a segment with `step:`, if it is one."""
        row = read_verl_line(segment)
        return [] if row is None else [row]
