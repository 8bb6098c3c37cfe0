"""Log dicts as trainers print them: `{'loss': 0.5, 'grad_norm': '0.1961', 'epoch': 0.44}` (`hf_console_dict`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from gradwatch.importers.base import Row
from gradwatch.importers.console_words import is_metric_name
from gradwatch.importers.number_text import number

NAN = float("nan")
MAX_DICTS = 64
"""Dicts, and starts of dicts that turn out to be none, looked at in one segment."""

MAX_JOINED_LINES = 64
MAX_JOINED_CHARS = 64 * 1024
_START = re.compile(r"\{\s{0,20}['\"]")
_ITEM = re.compile(
    r"""\s{0,20}(?:(?P<comma>,)\s{0,20})?(?P<quote>['"])(?P<key>[^'"{}\n]{1,256})(?P=quote)\s{0,8}:\s{0,8}
    (?: (?P<plain>[-+]?[.\w][-+.\w]{0,60})(?![-+.\w(])
      | '(?P<single>[^'\n]{0,2000})' | "(?P<double>[^"\n]{0,2000})"
      | (?P<call>[A-Za-z][\w.]{0,30}\([^(){}]{0,200}\))
      | (?P<other>\[[^\[\]{}]{0,4000}\]|\([^(){}]{0,1000}\)|<[^<>{}\n]{0,200}>)
    )(?=\s{0,20}[,}])""",
    re.X,
)
_CLOSE = re.compile(r"\s{0,20},?\s{0,20}\}")
_NESTED = re.compile(r"\s{0,20},?\s{0,20}['\"][^'\"{}\n]{1,256}['\"]\s{0,8}:\s{0,8}[\[(]?\s{0,8}\{")


class Scan(NamedTuple):
    """What was read from a dict's opening brace on, where the reading ended, and why."""

    values: dict[str, float]
    nulls: tuple[str, ...]
    end: int
    state: str  # closed, nested, open (the text ends inside it), broken


def scan_dict(text: str, at: int, last_close: int) -> Scan:
    """Read the flat dict whose brace is at `at`; `last_close` is the place of the text's last closing brace."""
    values: dict[str, float] = {}
    nulls: list[str] = []
    at += 1
    match = _ITEM.match
    while (item := match(text, at)) is not None:
        at = item.end()
        key, plain = item["key"], item["plain"]
        if plain in ("None", "null"):
            nulls.append(key)
            values[key] = NAN
        elif plain not in ("True", "False", "true", "false"):
            value = _number(plain or item["single"] or item["double"] or item["call"] or "")
            if value is not None:
                values[key] = value
    close = _CLOSE.match(text, at)
    if close is not None:
        return Scan(values, tuple(nulls), close.end(), "closed")
    if _NESTED.match(text, at):
        return Scan(values, tuple(nulls), at, "nested")
    return Scan(values, tuple(nulls), at, "open" if at > last_close else "broken")


def _number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return number(text)


def is_log(values: dict[str, float]) -> bool:
    """Whether the numbers of a dict were measured, not set."""
    if "epoch" in values and "learning_rate" in values:
        return True
    return any(is_metric_name(key) for key in values)


class DictReader:
    """Reads dicts out of segments; one that goes on in the next lines is joined, as far as they look like its rest."""

    format = "hf_console_dict"

    def __init__(self) -> None:
        self._joined = ""
        self._lines = 0

    @property
    def is_open(self) -> bool:
        """Whether the last segment ended inside a dict."""
        return bool(self._joined)

    def read(self, segment: str) -> list[Row]:
        """The rows of a segment with a brace, and of a dict that it cuts off."""
        return [*self.finish(), *self._rows(segment)]

    def goes_on(self, segment: str) -> list[Row] | None:
        """The rows of the open dict where the segment belongs to it; None where it is a segment of its own."""
        text = segment.strip()
        if not text.startswith(("'", '"', "}")) and (self._joined.endswith((",", "{")) or "}" not in text):
            return None
        if "{" in text or self._lines >= MAX_JOINED_LINES or len(self._joined) + len(text) > MAX_JOINED_CHARS:
            return None
        self._joined += text
        self._lines += 1
        if "}" not in text:
            return []
        joined, self._joined = self._joined, ""
        return self._rows(joined)

    def finish(self) -> list[Row]:
        """What can be read of a dict that was cut off."""
        joined, self._joined = self._joined, ""
        return self._rows(joined, join=False) if joined else []

    def _rows(self, text: str, join: bool = True) -> list[Row]:
        rows: list[Row] = []
        last_close = text.rfind("}")
        at = 0
        for _ in range(MAX_DICTS):
            start = _START.search(text, at)
            if start is None or _belongs_to_another(text, start.start()):
                break
            scan = scan_dict(text, start.start(), last_close)
            if scan.state == "nested":
                break
            if scan.state == "open" and join and len(text) - start.start() < MAX_JOINED_CHARS:
                self._joined, self._lines = text[start.start() :].rstrip(), 1
                break
            at = max(scan.end, start.end())
            if is_log(scan.values):
                rows.append(Row(scan.values, nulls=scan.nulls))
        if join and not rows and not self._joined and text.rstrip()[-1:] == "{" and len(text) < 200:
            self._joined, self._lines = "{", 1
        return rows


def _belongs_to_another(text: str, at: int) -> bool:
    """Whether the brace opens the value of a key, or a dict that comes again in another form.

    verl prints its first validation twice, as a dict and as step 0; only the latter says where it belongs.
    """
    before = text[max(0, at - 40) : at]
    return before.rstrip().endswith(("':", '":')) or "validation metrics" in before
