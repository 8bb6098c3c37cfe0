"""What an importer is: it recognises a format from a file's first bytes and yields the file's records one by one.

An importer knows only its format. Which key is the step, what a key means, and what a restart is are decided for all
formats alike by `axis` and `gradwatch.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from gradwatch.importers.source import Source


@dataclass(slots=True)
class Row:
    """One record of a log, with the keys as they are written.

    `step` is set only where the format itself says it (a TensorBoard event, a progress bar); elsewhere the step is one of the
    values. `axis` names the step axis where a file has several of its own (a TensorBoard tag); `run` the run, where a file
    has several. `nulls` are keys whose null stands for a non-finite value. A row that only carries settings has `config`;
    it is no `record` where settings stand beside the log's records, not among them.
    """

    values: dict[str, float]
    step: int | None = None
    wall_time: float = float("nan")
    axis: str = ""
    run: str = ""
    nulls: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    record: bool = True


class Importer(Protocol):
    """One log format."""

    format: str
    """The name that reports carry, such as `hf_trainer_state`."""
    rewritten: bool
    """Whether a program writes a file of this format anew each time, as it does a JSON document, instead of appending to it."""

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with `head` (at most 256 KiB, cut anywhere) is of this format. Never raises."""

    def rows(self, source: Source) -> Iterator[Row]:
        """The file's records in file order. Damage is skipped and said in `source.warn`; nothing but OSError is raised."""
