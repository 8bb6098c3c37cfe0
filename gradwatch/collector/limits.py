"""What a request may hold beyond its bytes: names, numbers that the store can keep, known words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gradwatch.errors import RefusedError
from gradwatch.schema import FAILED, FINISHED, INTERRUPTED, Series
from gradwatch.wire import RESUMES, Batch, OpenRun

MAX_ID = 200
MAX_NAME = 1000
MAX_SERIES = 100_000
MAX_DEPTH = 50
ENDS = ("", FINISHED, INTERRUPTED, FAILED)
_ID = re.compile(r"[^/\\\x00-\x1f\x7f]+")


def check_open(request: OpenRun) -> None:
    """RefusedError where the request cannot be what its sender meant."""
    _require_id("id", request.id)
    _require_text("process", request.process, least=1)
    for name in ("name", "project", "launch", "source", "format"):
        _require_text(name, getattr(request, name))
    if request.resume not in RESUMES:
        raise RefusedError(f"resume is {request.resume!r}: it must be one of {', '.join(RESUMES)}")
    _require_small("rank", [request.rank])
    _require_plain("config", request.config)
    _require_plain("roles", request.roles)


def check_batch(batch: Batch) -> None:
    """RefusedError where the batch holds a word or a number that cannot be kept."""
    _require_text("id", batch.id)
    _require_text("process", batch.process)
    if batch.status not in ENDS:
        raise RefusedError(f"status is {batch.status!r}: it must be one of {', '.join(ENDS[1:])}, or empty while the process runs")
    for place, numbers in _numbers(batch):
        _require_small(place, numbers)
    for at, event in enumerate(batch.events):
        _require_plain(f"events[{at}].facts", event.facts)


def check_series(series: list[Series]) -> None:
    """RefusedError where a series' name is too long, its rank too high, or where there are too many."""
    if len(series) > MAX_SERIES:
        raise RefusedError(f"the batch lists {len(series):,} series: send at most {MAX_SERIES:,} at a time")
    for at, one in enumerate(series):
        texts = (one.metric, one.source_key, one.stream, one.stat, one.role, one.agent, one.policy, one.scope)
        if not one.metric or max(map(len, texts)) > MAX_NAME:
            raise RefusedError(f"series[{at}] needs a metric, and none of its texts may have more than {MAX_NAME:,} characters")
        _require_small(f"series[{at}].rank", [one.rank])


def _numbers(batch: Batch) -> Iterator[tuple[str, Iterable[int | None]]]:
    for at, sample in enumerate(batch.samples):
        yield f"samples[{at}]", (sample.step, sample.turn, sample.prompt_tokens, sample.output_tokens, sample.flags, sample.attempt)
    for at, one in enumerate(batch.checkpoints):
        yield f"checkpoints[{at}]", (one.step, one.attempt)
    for at, event in enumerate(batch.events):
        yield f"events[{at}]", (event.step, event.attempt)


def _require_small(place: str, numbers: Iterable[int | None]) -> None:
    for number in numbers:
        if number is not None and not -(2**63) <= number < 2**63:
            raise RefusedError(f"{place} has the number {str(number)[:40]}: whole numbers must fit into 64 bits")


def _require_plain(place: str, value: object, depth: int = 0) -> None:
    """What is kept as it comes must have a form in JSON and in msgpack, or nobody could ask for it again."""
    if depth > MAX_DEPTH:
        raise RefusedError(f"{place} is nested more than {MAX_DEPTH} deep: send it flatter, or as text")
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise RefusedError(f"{place} has the number {str(value)[:40]}: whole numbers must fit into 64 bits, send it as text")
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str | int | float):
                raise RefusedError(f"{place} has the key {str(key)[:40]!r}: keys must be text")
            _require_plain(place, one, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            _require_plain(place, one, depth + 1)


def _require_text(place: str, text: str, least: int = 0) -> None:
    if not least <= len(text) <= MAX_NAME:
        raise RefusedError(f"{place} has {len(text):,} characters: {least} to {MAX_NAME:,} are allowed")


def _require_id(place: str, text: str) -> None:
    if len(text) > MAX_ID or text in (".", "..") or not _ID.fullmatch(text):
        raise RefusedError(f"{place} is {text[:MAX_ID]!r}: use 1 to {MAX_ID} characters without slashes and control characters")
