"""Reads logs with one JSON object a line: hand-written loops, LLaMA-Factory's `trainer_log.jsonl`, verl's file log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gradwatch.importers.base import Row
from gradwatch.importers.head import head_text
from gradwatch.importers.json_flat import flat, scalar
from gradwatch.importers.json_outline import outline
from gradwatch.importers.json_records import JsonDictOfLists, JsonList
from gradwatch.importers.json_stream import BrokenJsonError, decode
from gradwatch.importers.source import Source
from gradwatch.importers.trainer_state import TrainerState
from gradwatch.importers.wall_clock import wall_time

KIND_KEYS = ("event", "type", "kind", "record_type")
SETTINGS_KINDS = re.compile(
    r"(?:(?:run|job|train|training|session|experiment)[_ .-]?)?"
    r"(?:config\w*|args|arguments|hparams|hyper_?param\w*|params|settings|meta|metadata|header|env|environment|system|setup|init|start\w*|begin|done|end\w*|finish\w*|complete\w*)",
    re.IGNORECASE,
)
SETTINGS_KEYS = frozenset({"config", "args", "hparams", "hyperparameters", "params", "settings", "metadata"})
STEP_KEYS = frozenset({"step", "global_step", "_step", "iteration", "epoch", "current_steps"})
LARGEST_STEP = 2**53
"""Beyond this a float no longer tells neighbouring steps apart."""
LONGEST_SETTING = 1000
"""Characters of a text beside the numbers that may be a setting; a longer one is a prompt or an answer."""


class Jsonl:
    """`{"step": 1, "loss": 0.5}` a line; null is absent, nested keys are joined by '/'."""

    format = "jsonl"
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """Most lines are JSON objects, and the file is no whole JSON document with its own importer."""
        return _mostly_objects(head) and not _is_verl(head) and not any(kind.recognises(head) for kind in DOCUMENTS)

    def rows(self, source: Source) -> Iterator[Row]:
        """One row an object; an object without metrics gives a row with `config` only."""
        for record in _objects(source):
            values = {} if _is_settings(record) else flat(record, source.warn).values
            yield Row(values, wall_time=wall_time(values)) if values else Row(values, config=_settings(record))


class VerlJsonl:
    """verl's file logger: `{"step": 1, "data": {"actor/grad_norm": 0.5}}`, where null stands for NaN or infinity."""

    format = "verl_jsonl"
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """Most lines are JSON objects, and the first has just `step` and an object `data`."""
        return _mostly_objects(head) and _is_verl(head)

    def rows(self, source: Source) -> Iterator[Row]:
        """One row a line, with the step that the line says."""
        for record in _objects(source):
            data, step = record.get("data"), scalar(record.get("step"), source.warn)
            if not isinstance(data, dict):
                source.warn("an object without `data` was skipped")
                continue
            found = flat(data, source.warn, null_is_nan=True)
            whole = int(step) if step is not None and abs(step) < LARGEST_STEP and step.is_integer() else None
            yield Row(found.values, step=whole, wall_time=wall_time(found.values), nulls=tuple(found.nulls))


DOCUMENTS = (TrainerState(), JsonList(), JsonDictOfLists())


def _is_settings(record: dict[str, Any]) -> bool:
    """Whether an object says that it is no metric, or holds nothing but a block of settings."""
    for key in KIND_KEYS:
        kind = record.get(key)
        if isinstance(kind, str) and SETTINGS_KINDS.fullmatch(kind):
            return STEP_KEYS.isdisjoint(record)
    return bool(record) and record.keys() <= SETTINGS_KEYS


def _settings(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not isinstance(value, str) or len(value) <= LONGEST_SETTING}


def _objects(source: Source) -> Iterator[dict[str, Any]]:
    """The objects of all lines; other lines are counted and said at the end."""
    skipped, first, last_bad, number = 0, 0, False, 0
    for number, line in enumerate(source.lines(), 1):
        text = line.strip(" \t\r\0\x1e")
        last_bad = False
        if not text:
            continue
        found, whole = _parse(text)
        yield from found
        if not whole:
            last_bad = True
            skipped += 1
            first = first or number
    if last_bad:
        skipped -= 1
        source.warn(f"the last line ({number}) is half written or no JSON object, and was skipped")
    if skipped:
        source.warn(f"{skipped} lines are no JSON objects and were skipped; the first is line {first}")


def _parse(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The objects of one line, of which two writers can leave several, and whether nothing else is on it."""
    found: list[dict[str, Any]] = []
    at = 0
    while at < len(text):
        if text[at] != "{":
            return found, False
        try:
            record, at = decode(text, at)
        except (json.JSONDecodeError, BrokenJsonError):
            return found, False
        found.append(record)
        while at < len(text) and text[at] in " \t\r\0,":
            at += 1
    return found, True


@lru_cache(maxsize=2)
def _mostly_objects(head: bytes) -> bool:
    """Whether more than half of the lines are JSON objects; a last line may be cut."""
    lines = [text for line in head_text(head).split("\n") if (text := line.strip(" \t\r\0\x1e"))]
    if len(lines) == 1 and lines[0].startswith('{"') and not _parse(lines[0])[0]:
        return bool(outline(head).has("number")) and not outline(head).closed  # one long line, cut
    whole = sum(bool(_parse(line)[0]) for line in lines)
    cut = bool(lines) and not _parse(lines[-1])[1]
    return whole > 0 and whole > (len(lines) - cut) / 2


def _is_verl(head: bytes) -> bool:
    kinds = outline(head).kinds
    return list(kinds) == ["step", "data"] and kinds["data"] in ("object", "cut")
