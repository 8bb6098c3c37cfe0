"""A console log of any kind: every line goes to the readers of the forms that it may be in.

The head of a file does not tell its form (a megabyte of warnings may come first), so all readers run, behind cheap
tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gradwatch.importers.bar_steps import BarSteps
from gradwatch.importers.base import Row
from gradwatch.importers.console_dict import DictReader
from gradwatch.importers.console_pairs import PairsReader
from gradwatch.importers.console_text import CONTINUES, console_lines, is_notebook, is_stream_log, looks_like_text
from gradwatch.importers.sb3_table import TableReader
from gradwatch.importers.source import MisjudgedError, Source
from gradwatch.importers.verl_console import VerlReader

MAX_HELD_PAIRS = 1000
"""Rows of plain pairs held back while a form with rows of its own may still turn up, which would make them noise."""

BLANK_WIDTH = 8
STEP_KEYS = frozenset({"step", "global_step", "global_steps", "current_steps"})


class Console:
    """The last resort for text. `Source.format` says, after reading, which form had the most rows."""

    format = PairsReader.format
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """Whether the bytes are text."""
        return looks_like_text(head)

    def rows(self, source: Source) -> Iterator[Row]:
        """The rows of all forms; plain pairs only where no other form has any."""
        reading = _Reading()
        for line in console_lines(source):
            if "\r" in line:
                yield from reading.segments(line)
            elif line:
                yield from reading.segment(line, opens_line=True, returns=False)
            elif source.idle:
                yield from reading.settle()
                source.format = reading.format()
        yield from reading.finish()
        source.format = reading.format()


class Notebook(Console):
    """What the cells of a notebook printed, in the notebook or in the log that its service keeps: console text within JSON."""

    rewritten = True

    def recognises(self, head: bytes) -> bool:
        """Whether the console's text lies within a notebook or such a log."""
        return looks_like_text(head) and (is_notebook(head) or is_stream_log(head))


class _Reading:
    """The readers' state over one file."""

    def __init__(self) -> None:
        self._bars = BarSteps()
        self._dicts = DictReader()
        self._verl = VerlReader()
        self._tables = TableReader()
        self._pairs = PairsReader()
        self._counts: Counter[str] = Counter()
        self._held_pairs: list[Row] = []
        self._early_pairs = 0
        self._releases = False

    def segments(self, line: str) -> Iterator[Row]:
        """The segments that carriage returns make of a line."""
        opens = not line.startswith(CONTINUES)
        for segment in line.removeprefix(CONTINUES).split("\r"):
            if segment:
                yield from self.segment(segment, opens, returns=True)
                opens = False

    def segment(self, segment: str, opens_line: bool, returns: bool) -> list[Row]:
        """Send a segment to whoever may read it. The tests are ordered by what they cost and how much they spare."""
        rows: list[Row] = []
        if "%|" in segment or "━" in segment:
            rows = self._bars.see_bar(segment)
            if "{" in segment:
                rows += self._stepped(self._dicts.read(segment))
            return rows + self._verl_rows(segment) if "step:" in segment else rows
        first = segment[:1]
        if first == " " and segment.isspace():
            if len(segment) >= BLANK_WIDTH:
                self._bars.see_blank(segment, opens_line, returns)
            return rows
        if self._dicts.is_open:
            joined = self._dicts.goes_on(segment)
            if joined is not None:
                return self._stepped(joined)
            rows = self._stepped(self._dicts.finish())
        if "{" in segment:
            return rows + self._stepped(self._dicts.read(segment))
        if "step:" in segment and " - " in segment and (found := self._verl_rows(segment)):
            return rows + found
        if first in "|-" or (first == " " and segment.lstrip()[:1] in "|-"):
            found = self._tables.read(segment)
            self._count(TableReader.format, found)
            return rows + found
        return rows + self._pair_rows(segment)

    def settle(self) -> list[Row]:
        """What is held only in case that the form of the log is another than it looks so far."""
        # Where dicts are not the only form, holding them back decides the order of the rows.
        rows = self._bars.settle() if self._counts.keys() <= {DictReader.format} else []
        if self._has_forms() or self._releases or not any(row.values for row in self._held_pairs):
            return rows
        held, self._held_pairs = self._held_pairs, []
        self._early_pairs += len(held)
        return rows + held

    def finish(self) -> list[Row]:
        """What is still held or open at the end of the file."""
        rows = self._stepped(self._dicts.finish())
        tables = self._tables.finish()
        self._count(TableReader.format, tables)
        rows += tables + self._bars.finish()
        if not self._has_forms():
            rows += self._held_pairs
        return rows

    def format(self) -> str:
        """The form with the most rows."""
        best = self._counts.most_common(1)
        return best[0][0] if best else PairsReader.format

    def _stepped(self, rows: list[Row]) -> list[Row]:
        """Rows of dicts with the steps of the training bar, or as they are where they say their step themselves."""
        self._count(DictReader.format, rows)
        settled: list[Row] = []
        for row in rows:
            settled += [row] if not STEP_KEYS.isdisjoint(row.values) else self._bars.see_row(row)
        return settled

    def _verl_rows(self, segment: str) -> list[Row]:
        rows = self._verl.read(segment)
        self._count(VerlReader.format, rows)
        return rows

    def _pair_rows(self, segment: str) -> list[Row]:
        if self._has_forms():
            return []
        rows = self._pairs.read(segment)
        if self._releases or not rows:
            return rows
        self._held_pairs += rows
        if self._early_pairs + len(self._held_pairs) < MAX_HELD_PAIRS:
            return []
        self._releases = True
        held, self._held_pairs = self._held_pairs, []
        return held

    def _has_forms(self) -> bool:
        return bool(self._counts)

    def _count(self, form: str, rows: list[Row]) -> None:
        if rows:
            self._counts[form] += len(rows)
            self._held_pairs.clear()
            if (self._early_pairs and not self._releases) or (self._bars.early and form != DictReader.format):
                raise MisjudgedError(f"its first rows were taken for metrics before lines of form {form} came")
