"""Samples as users give them, copied in the caller's thread and made into the records that travel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gradwatch.client.notices import Notices
from gradwatch.client.snapshot import snapshot
from gradwatch.client.text import MOST_TEXT, cut, name
from gradwatch.client.values import read_number
from gradwatch.schema import Sample

CUT = 1
"""Sample flag: the prompt or the output was longer than `text.MOST_TEXT` characters and was cut."""
SHORT, LONG = ("role", "agent", "group"), ("prompt", "output")
NUMBERS = ("advantage", "influence")
COUNTS = ("turn", "prompt_tokens", "output_tokens")
FIELDS = frozenset(Sample.__struct_fields__)
MOST_FLAGS, MOST_COUNT = 2**31 - 1, 2**53
BASE_WEIGHT, BYTES_A_VALUE = 20, 8


class Row(NamedTuple):
    """A copied sample: its texts, and its other fields by flat names such as `rewards/format`."""

    texts: dict[str, str]
    numbers: dict[str, Any]
    waits: tuple[Any, ...]
    flags: int
    unknown: tuple[str, ...]

    @property
    def weight(self) -> int:
        """What it takes in the queue, in values of 8 bytes."""
        return BASE_WEIGHT + len(self.numbers) + sum(map(len, self.texts.values())) // BYTES_A_VALUE


def copy_row(row: Any) -> Row:
    """A copy of a sample that is a `Sample` or a mapping with its fields; `rewards` may be a single number."""
    given: dict[str, Any] = msgspec.structs.asdict(row) if isinstance(row, Sample) else dict(row)
    texts = {field: cut(given[field]) for field in LONG if given.get(field) is not None}
    is_cut = any(len(str(given[field])) > MOST_TEXT for field in texts)
    texts |= {field: name(given[field]) for field in SHORT if given.get(field) is not None}
    measured = {field: given[field] for field in ("step", "format_valid", *NUMBERS, *COUNTS) if given.get(field) is not None}
    rewards = given.get("rewards")
    if rewards is not None:
        measured["rewards"] = rewards if isinstance(rewards, Mapping) else {"reward": rewards}
    numbers, waits, _ = snapshot(measured)
    flags = int(given.get("flags") or 0) & MOST_FLAGS | (CUT if is_cut else 0)
    return Row(texts, numbers, waits, flags, tuple(given.keys() - FIELDS))


def to_sample(row: Row, step: int, notices: Notices) -> Sample:
    """The sample of a row at a step. A reward that is None or no number is NaN: something was asked and did not answer."""
    for field in row.unknown:
        notices.once(f"sample:{field}", f"log_samples: a sample has no field {field!r}; there are {', '.join(sorted(FIELDS))}")
    read = {field: read_number(value) for field, value in row.numbers.items()}
    head = "rewards/"
    rewards = {name(key[len(head) :]): math.nan if got is None else got for key, got in read.items() if key.startswith(head)}
    counts = {field: int(got) for field in COUNTS if (got := read.get(field)) is not None and abs(got) < MOST_COUNT}
    valid = read.get("format_valid")
    return Sample(
        step=step,
        rewards=rewards,
        advantage=read.get("advantage"),
        influence=read.get("influence"),
        format_valid=None if valid is None else bool(valid),
        flags=row.flags,
        **counts,  # type: ignore[arg-type]
        **row.texts,  # type: ignore[arg-type]
    )
