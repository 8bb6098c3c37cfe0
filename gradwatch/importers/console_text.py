"""A console log as clean lines: no escapes, no Ray prefixes, notebook wrapping undone.

A line keeps its carriage returns: each starts a new segment, and a blank segment is how a progress bar is cleared.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator, Iterator
from typing import Any

from gradwatch.importers.source import Source

CURSOR_UP = "\x0b"
"""Stands for the escape that moves the cursor up a line: it tells a nested bar's clear from the outer bar's."""

CONTINUES = "\x1c\r"
"""Begins a piece that goes on with the line of the piece before: a file that grows is read within the line of its bar."""

MAX_TEXT = 4 * 1024 * 1024
"""The longest piece of text without a line end that is kept; a console line has no business being longer."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n\r]{0,512}(?:\x07|\x1b\\)?|[ -/]?[0-~])")
# Written without `^`, so that the search can skip to the next parenthesis.
_RAY_PREFIX = re.compile(r"\((?<![^\n]\()(?:[\w.:<>-]{1,120} ){0,3}pid=\d{0,12}(?:, ip=[\w.:]{1,64})?\) ?")
_RAY_REPEAT = re.compile(r" ?\[repeated \d{1,12}x across cluster\](?: \(Ray dedup[^\n\r]{0,400})?")
_STREAM_HEAD = b'[{"stream_name"'
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def looks_like_text(head: bytes) -> bool:
    """Whether the bytes are text: hardly any control characters, or UTF-16 with its mark."""
    if not head:
        return False
    if head.startswith(_MARKS):
        return True
    # A log that was truncated under its writer begins with a hole of zeros.
    sample = head.lstrip(b"\0")[: 64 * 1024]
    controls = len(sample) - len(sample.translate(None, bytes([*range(7), *range(14, 27), *range(28, 32), 127])))
    return bool(sample) and b"\0\0" not in sample and controls <= len(sample) // 100


def is_stream_log(head: bytes) -> bool:
    """Whether a file is the log that a notebook service keeps of a run."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(_STREAM_HEAD)


def is_notebook(head: bytes) -> bool:
    """Whether a file is a notebook."""
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{") and b'"cells"' in head and b'"cell_type"' in head


def console_lines(source: Source) -> Iterator[str]:
    """The cleaned lines without newline; one too long to hold is cut at a carriage return, or skipped and said."""
    head = source.head()
    if is_stream_log(head):
        blocks = _from_streams(_stream_records(source))
    elif is_notebook(head):
        blocks = _from_streams(_notebook_outputs(source))
    else:
        blocks = _blocks(source)
    for block in blocks:
        yield from _clean(block).split("\n")


def _clean(block: str) -> str:
    if "\x1b" in block:
        block = _ESCAPE.sub("", block.replace("\x1b[A", CURSOR_UP))
    if "pid=" in block:
        block = _RAY_PREFIX.sub("", block)
        if "[repeated " in block:
            block = _RAY_REPEAT.sub("", block)
    return block


def _blocks(source: Source) -> Iterator[str]:
    """The text in pieces that end at a line end (which is dropped), or within an unfinished line at a carriage return."""
    kept = ""
    for chunk in source.text():
        text = kept + chunk
        cut = text.rfind("\n")
        if cut < 0:
            text = yield from _drawn(text)
            if source.idle:
                yield ""
        else:
            yield text[:cut]
        kept = _bounded(text[cut + 1 :], source)
    if kept:
        yield kept


def _drawn(text: str) -> Generator[str, None, str]:
    """The part of an unfinished line that a carriage return ends; returns the rest."""
    cut = text.rfind("\r")
    if cut < len(CONTINUES):
        return text
    yield text[:cut]
    return CONTINUES + text[cut + 1 :]


def _bounded(kept: str, source: Source) -> str:
    if len(kept) <= MAX_TEXT:
        return kept
    source.warn(f"a console line is longer than {MAX_TEXT // 2**20} MiB and was skipped; split it to have it read")
    return ""


def _stream_records(source: Source) -> Iterator[tuple[str, str]]:
    """A notebook service's log: a list with one record a line, `{"stream_name": …, "time": …, "data": …}`."""
    for line in source.lines():
        text = line.strip().lstrip("[,").rstrip("],")
        if not text:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            source.warn("a record of the notebook log is no JSON and was skipped")
            continue
        if isinstance(record, dict) and isinstance(record.get("data"), str):
            yield str(record.get("stream_name")), record["data"]


def _notebook_outputs(source: Source) -> Iterator[tuple[str, str]]:
    """The stream outputs of a notebook file, which holds one string a line between `"text": [` and `]`."""
    name, inside = "stdout", False
    for line in source.lines():
        text = line.strip().rstrip(",")
        if inside:
            inside = text != "]"
            if inside:
                yield name, _string(text)
        elif text.startswith('"name": "std'):
            name = text[9:15]
        elif text.startswith('"text": '):
            inside = text == '"text": ['
            yield name, "" if inside else _string(text[8:])
        elif text.startswith("{") and len(text) > 200:
            yield from _packed_outputs(text)


def _string(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _joined(value)


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _packed_outputs(text: str) -> Iterator[tuple[str, str]]:
    """A notebook written on one line."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict) and output.get("output_type") == "stream":
                yield str(output.get("name")), _joined(output.get("text"))


def _from_streams(records: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Whole lines of each stream, in the order of their ends; a bar's line is passed on as far as it is drawn."""
    open_lines: dict[str, str] = {}
    for name, data in records:
        text = open_lines.pop(name, "") + data
        cut = max(text.rfind("\n"), text.rfind("\r"))
        if cut >= 0:
            yield text[:cut]
        if len(open_lines) < 8 and len(text) - cut <= MAX_TEXT:
            open_lines[name] = text[cut + 1 :]
    yield from filter(None, open_lines.values())
