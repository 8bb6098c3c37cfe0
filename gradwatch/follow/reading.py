"""One reading of a log through its importer: of a file that grows, which lasts as long as the file does, or of a whole document."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from gradwatch.follow.growing import GrowingSource
from gradwatch.importers import Importer
from gradwatch.importers.axis import Axes
from gradwatch.importers.blocks import Blocks, RunLog
from gradwatch.importers.console_text import looks_like_text
from gradwatch.importers.reader import recognise
from gradwatch.importers.source import HEAD_BYTES, MisjudgedError, Source
from gradwatch.schema import Block

FLUSH_SECONDS = 0.5
"""How long points may wait while there is more of the file to read."""

Deliver = Callable[[str, RunLog, Block], None]


def recognise_growing(head: bytes) -> Importer | None:
    """The importer for a file that begins with `head` so far; None where it takes more to tell.

    Text is judged by its whole lines, unless it is a document, which is written at once and need not end in a line end.
    """
    importer = recognise(head)
    if importer is None or importer.rewritten or len(head) >= HEAD_BYTES or not looks_like_text(head):
        return importer
    cut = head.rfind(b"\n") + 1
    return recognise(head[:cut]) if cut else None


class GrowingReading:
    """A reading of a file that is appended to. Points are delivered as soon as their lines are complete.

    Raises MisjudgedError where the file must be read again from its start, StoppedError where the following was stopped.
    """

    def __init__(self, path: Path, importer: Importer, deliver: Deliver, stop: threading.Event, end_after: float) -> None:
        self.source = GrowingSource(path, stop, self._at_end, end_after)
        self._importer = importer
        self._deliver = deliver
        self._axes = Axes(self.source)
        self._blocks = Blocks(self.source.warn)
        self._judged = 0
        self._flushed = time.monotonic()

    @property
    def runs(self) -> dict[str, RunLog]:
        """What the file told so far of each of its runs."""
        return self._blocks.runs

    @property
    def form(self) -> str:
        """The format's name, as finely as the content told it."""
        return self.source.format or self._importer.format

    def read(self) -> None:
        """Read the file until it ends or is replaced by another."""
        for run, block in self._blocks.of(self._axes.place(self._importer.rows(self.source))):
            self._deliver(run, self.runs[run], block)

    def _at_end(self, whole: bool) -> None:
        """Deliver what there is; at the file's present end also what waits for rows that may take long to come.

        At its last end nothing need be guessed any more: the reading's own end delivers the rest.
        """
        if not whole and time.monotonic() - self._flushed < FLUSH_SECONDS:
            return
        if whole:
            self._judge_format()
        for run, block in self._blocks.of(self._axes.settle() if whole and not self.source.ended else ()):
            self._deliver(run, self.runs[run], block)
        self._flushed = time.monotonic()

    def _judge_format(self) -> None:
        """Whether the file still looks like the format that it is read as, asked again for every tenth more of its beginning."""
        size = min(self.source.position, HEAD_BYTES)
        if size < 1.1 * self._judged and not (self.source.ended and size > self._judged):
            return
        self._judged = size
        importer = recognise_growing(self.source.head())
        if importer is not None and importer is not self._importer:
            raise MisjudgedError(f"it was read as {self.form}, and by now looks like {importer.format}")


def read_document(path: Path, importer: Importer, deliver: Deliver) -> tuple[Source, dict[str, RunLog]]:
    """Read a file that is written anew each time, as it is now; returns its warnings' source and what it told of its runs."""
    source = Source(path)
    blocks = Blocks(source.warn)
    for run, block in blocks.of(Axes(source).place(importer.rows(source))):
        deliver(run, blocks.runs[run], block)
    return source, blocks.runs
