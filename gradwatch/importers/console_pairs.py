"""Console lines of `key=value` and `key: value` pairs of any program (format `generic_console`).

Being sure comes before reading everything: a line that is no log of the training must not become a row.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gradwatch.importers.base import Row
from gradwatch.importers.console_words import is_metric_name, is_step_name
from gradwatch.importers.line_shapes import LineShapes
from gradwatch.importers.number_text import number

MAX_LINE = 4096
_PREFIX = re.compile(
    r"""(?:[\[(]?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?
      | [\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?
      | [IWEF]\d{4}\s\d\d:\d\d:\d\d\.\d{1,9}\s{1,8}\d{1,9}\s[\w.]{1,80}:\d{1,6}\]
      | \[[\w./|<>-]{1,80}:\d{1,6}(?::\w{1,80})?\] | \[Rank\s\d{1,6}\]
      | [\[(]?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|SUCCESS|TRACE)\b[\])]?
      | [\w.<>]{1,80}:[\w<>]{1,80}:\d{1,6}(?!\S)
      | (?<=-\s)[A-Za-z_][\w.]{0,80}\s-\s | (?<=:)[A-Za-z_][\w.]{0,60}:(?=[A-Za-z])
      | [|:>-]{1,2} | \s{1,20})""",
    re.X,
)
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,30})?(?![\d,])"
    r"|\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|\.\d{1,30}|nan\b|inf\b)"
)
_UNIT = r"(?:\s?(?:ms|secs?|s|%|it/s|s/it|/s|tokens/s|[kKMG]B|GiB|MiB)(?![\w/]))?"
_ENDS = r"(?![\w:/\\]|[.,-]\d|\.\w)"
_HEAD = re.compile(
    r"[\[(]?(?P<key>(?:(?:global|train(?:ing)?)[ _])?"
    r"(?:step|iter(?:ation)?|it|epoch|update|episode|timestep|batch|round))"
    r"\s{0,4}(?P<sep>[=:#]?)\s{0,12}\[?\s{0,12}(?P<n>\d{1,15})\s{0,4}(?P<of>/\s{0,12}\d{1,15}\s{0,4})?"
    r"[\])]{0,2}(?![\w.])[:,]?",
    re.I,
)
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<key>[A-Za-z_][\w./@%-]{{0,100}}(?: [A-Za-z(@][\w./@%()-]{{0,40}}){{0,4}})"
    rf"\s{{0,4}}[=:]\s{{0,12}}(?P<value>{_NUMBER})(?P<of>\s?/\s?\d{{1,15}}(?![\w.]))?{_UNIT}{_ENDS}",
    re.I,
)
_BARE = re.compile(
    rf"(?P<key>[A-Za-z_][A-Za-z_/@]{{0,40}}(?: [A-Za-z_/@]{{1,40}}){{0,2}})\s{{1,8}}"
    rf"(?P<value>{_NUMBER}){_UNIT}(?![\w.:/])"
    r"(?:\s{1,4}\([^()]{1,30}\))?\s{0,8}",
    re.I,
)
_SPLIT = re.compile(r",(?!\d)|[|;\t]|\s{2,}+(?![-+.\d(])| - ")
_CALL = re.compile(r"\w\([\w]{1,60}=")
_WORDS = ("step", "iter", "epoch", "loss", "reward", "update", "episode", "round", "batch")


def may_be_pairs(segment: str) -> bool:
    """A cheap test that nearly every other line fails."""
    if len(segment) > MAX_LINE or len(segment) < 8:
        return False
    if segment.count(": ") + segment.count("=") > 1:
        return True
    lowered = segment.lower()
    return any(word in lowered for word in _WORDS)


class _Pairs(NamedTuple):
    values: dict[str, float]
    whole: int
    """Fields that are a pair and nothing else."""

    rest: int
    """Fields that are not."""


def read_pairs(segment: str) -> Row | None:
    """The row of a line; a line of settings only gives a row with `config`, any other line gives none."""
    message = _strip_prefix(segment)
    if _CALL.search(message) or "://" in message or "{" in message:
        return None
    head = _HEAD.match(message)
    if head is None and message.count("=") + message.count(":") < 2:
        return None
    pairs = _read_fields(message[head.end() :] if head else message, bare=head is not None)
    values = pairs.values
    measured = sum(is_metric_name(key) for key in values)
    steps = sum(is_step_name(key) for key in values)
    headed = head is not None and bool(values) and (_is_sure(head) or (measured > 0 and pairs.whole >= pairs.rest))
    if headed or measured >= 2 or (steps and len(values) > steps and pairs.whole >= pairs.rest):
        return Row({head["key"].strip(): float(head["n"]), **values} if head else values)
    if head is None and pairs.whole >= 2 and pairs.rest <= 1 and all(len(key) > 2 for key in values):
        return Row({}, config=dict(values))
    return None


def _is_sure(head: re.Match[str]) -> bool:
    """Whether a line's beginning says a step by itself: `iter=5`, `step 5/10`; a sampled answer has `Step 1: x = 5`."""
    return bool(head["sep"] or head["of"]) and is_step_name(head["key"])


def _strip_prefix(segment: str) -> str:
    at = 0
    for _ in range(16):
        found = _PREFIX.match(segment, at)
        if found is None:
            break
        at = found.end()
    return segment[at:].strip(" .")


def _read_fields(message: str, bare: bool) -> _Pairs:
    values: dict[str, float] = {}
    whole = rest = 0
    for field in _SPLIT.split(message):
        text = field.strip()
        if not text:
            continue
        covered = 0
        for found in _PAIR.finditer(text) if "=" in text or ":" in text else ():
            if found["of"] is None or is_step_name(found["key"]):
                covered += found.end() - found.start() + 1
                _put(values, found)
        if not covered and bare:
            covered = _read_bare(text, values)
        whole += covered >= len(text) - 2
        rest += covered < len(text) - 2
    return _Pairs(values, whole, rest)


def _read_bare(text: str, values: dict[str, float]) -> int:
    """Read `loss 2.31 ppl 10.1`, which counts only where the whole field is like that."""
    at, found = 0, []
    while (pair := _BARE.match(text, at)) is not None:
        at = pair.end()
        found.append(pair)
    if at < len(text):
        return 0
    for pair in found:
        _put(values, pair)
    return at


def _put(values: dict[str, float], found: re.Match[str]) -> None:
    """Keep a pair; of two with one name, as in `train: loss=1, val: loss=2`, the first."""
    value = number(found["value"].replace(",", ""))
    if value is not None:
        values.setdefault(found["key"].strip(), value)


class PairsReader:
    """Reads lines of pairs."""

    format = "generic_console"

    def __init__(self) -> None:
        self._shapes = LineShapes(read_pairs)

    def read(self, segment: str) -> list[Row]:
        """The row of a line, if it is one."""
        if not may_be_pairs(segment):
            return []
        row = self._shapes.read(segment)
        return [] if row is None else [row]
