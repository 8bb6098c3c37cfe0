"""Reads CSV tables: wandb exports, Lightning's `metrics.csv`, `progress.csv` of stable-baselines3 and baselines."""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from gradwatch.importers.base import Row
from gradwatch.importers.head import head_text
from gradwatch.importers.number_text import number
from gradwatch.importers.source import Source
from gradwatch.importers.wall_clock import wall_time

DELIMITERS = ",;\t"
SAMPLE_LINES = 50
WIDE = 20
"""Cells without a space that make a line a header, even where the beginning of the file ends inside it."""
LONGEST_RECORD = 20
"""Lines that one record may span inside quotes: past this a quote is taken for a stray one."""
BLANKS = frozenset({"", "none", "null", "na", "n/a", "nan", "-", "inf", "-inf"})
FEW = 3
"""Lines that fit a header of whole phrases by accident."""
MAX_TABLES = 20
"""Tables in one file that are runs of their own; what looks like more of them is damage."""
RUN_MARK = " - "
NAME = re.compile(r"[A-Za-z_][\w./@%-]{0,200}")
Split = Callable[[dict[str, float]], Iterator[tuple[str, dict[str, float]]]]


class CsvTable:
    """A header and rows of numbers; blanks are absent. A wandb UI export gives one row a run and line."""

    format = "csv"
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """A line of names, and below it lines with as many cells, of which at least half are numbers or blank."""
        text = head_text(head)
        lines = [line.rstrip("\r") for line in itertools.islice(_text_lines(text), SAMPLE_LINES + 1)]
        if not lines or lines[0][0] in "{[|<" or text.startswith("#{"):
            return False
        delimiter = sniff(lines[0])
        names = cells_of(lines[0], delimiter)
        numbers = sum(number(name) is not None for name in names)
        if len(names) < 2 or numbers > len(names) / 4 or len(set(names)) <= len(names) / 2:
            return False
        return _mostly_numbers([cells_of(line, delimiter) for line in lines[1:]], names)

    def rows(self, source: Source) -> Iterator[Row]:
        """The table's lines; those of another length than the header are read as far as they go, and said."""
        lines = source.lines()
        # A log that was truncated under its writer begins with a hole of zeros.
        header = next((line for line in lines if line.strip(" \t\r\0") and not line.startswith("#")), "").strip("\r\0")
        delimiter = sniff(header)
        table = _Table(cells_of(header, delimiter), delimiter, source)
        for line in records(lines):
            for run, values in table.read(line):
                yield Row(values, wall_time=wall_time(values), run=run or table.run)
        table.say_damage()


def sniff(header: str) -> str:
    """The delimiter that splits the header into the most names."""
    return max(DELIMITERS, key=lambda mark: len(cells_of(header, mark)))


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line; quotes are undone. A line that is no CSV has no cells."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell longer than the module's limit, or a bare carriage return
        return []


def records(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with those joined again that a quoted cell with a line break inside spans."""
    waiting: deque[str] = deque()
    incoming = iter(lines)
    while True:
        line = waiting.popleft() if waiting else next(incoming, None)
        if line is None:
            return
        if line.count('"') % 2:
            line = _joined(line, waiting, incoming)
        yield line.removesuffix("\r")


def _joined(line: str, waiting: deque[str], incoming: Iterator[str]) -> str:
    """The record that begins with `line`; where its quote is never closed, just the line."""
    waiting.extend(itertools.islice(incoming, max(0, LONGEST_RECORD - len(waiting))))
    for place, following in enumerate(waiting):
        if following.count('"') % 2:
            whole = "\n".join([line, *itertools.islice(waiting, place + 1)])
            for _ in range(place + 1):
                waiting.popleft()
            return whole
    return line


class _Table:
    """The header in force and the damage met so far."""

    def __init__(self, names: list[str], delimiter: str, source: Source) -> None:
        self._delimiter = delimiter
        self._source = source
        self.run = ""
        self._tables = 1
        self._ragged = 0
        self._foreign = 0
        self._line = 1
        self._first_ragged = 0
        self._short: list[tuple[str, dict[str, float]]] = []
        self._adopt(names)

    def _adopt(self, names: list[str]) -> None:
        self._names = [name.strip() or "index" for name in names]
        self._known = frozenset(self._names)
        self._split: Split = run_splitter(self._names) or (lambda values: iter([("", values)]))

    def read(self, line: str) -> Iterator[tuple[str, dict[str, float]]]:
        """The runs and values of one record. A short one is held back: at the file's end it is half written."""
        self._line += 1
        if not line or line.isspace():
            return
        held, self._short = self._short, []
        yield from held
        cells = cells_of(line, self._delimiter)
        if self._is_header(cells):
            self._source.warn(f"the header comes again at line {self._line}: the run was restarted there")
            self._adopt(cells)
            return
        values = self._values(line, cells)
        if not values and is_other_header(line):
            self._source.warn(f"another table begins at line {self._line}: it was read as a run of its own")
            self._tables += 1
            self.run = f"table from line {self._line}" if self._tables < MAX_TABLES else self.run
            self._delimiter = sniff(line)
            self._adopt(cells_of(line, self._delimiter))
            return
        self._foreign += not values and any(cell.strip("\0 \t\r") for cell in cells)
        found = self._split(values) if values else iter(())
        if len(cells) != len(self._names) and any(cells[len(self._names) :] or ["short"]):
            self._ragged += 1
            self._first_ragged = self._first_ragged or self._line
        if len(cells) < len(self._names):
            self._short = list(found)
        else:
            yield from found

    def say_damage(self) -> None:
        """Warn of the records whose cells do not fit the header."""
        if self._short:
            self._ragged -= 1
            self._source.warn(f"the last line ({self._line}) is half written and was skipped")
        if self._foreign:
            self._source.warn(f"{_lines(self._foreign)} no number under any of the table's names: skipped")
        if self._ragged:
            self._source.warn(
                f"{_lines(self._ragged)} not {len(self._names)} cells as the header has; the first is line {self._first_ragged}"
            )

    def _is_header(self, cells: list[str]) -> bool:
        """Whether a line in the middle is a header again, the same or one with columns added."""
        if not cells or (cells[0].strip() not in self._known and cells[-1].strip() not in self._known):
            return False
        return sum(cell.strip() in self._known for cell in cells) > len(cells) / 2

    def _values(self, line: str, cells: list[str]) -> dict[str, float]:
        if "_" not in line:  # float() would take 1_000 for a number
            try:
                return {name: float(cell) for name, cell in zip(self._names, cells, strict=False) if cell}
            except ValueError:
                pass  # a text is among the cells: they are read one by one
        values = {}
        for name, cell in zip(self._names, cells, strict=False):
            if cell and (value := self._number(cell)) is not None:
                values[name] = value
        return values

    def _number(self, cell: str) -> float | None:
        value = number(cell)
        if value is None and self._delimiter == ";":
            return number(cell.replace(",", ".", 1))
        return value


def is_other_header(line: str) -> bool:
    """Whether a line in the middle can only be another table's header: several different names and nothing else."""
    names = [name.strip() for name in cells_of(line, sniff(line))]
    return len(names) > 1 and len(set(names)) == len(names) and all(map(NAME.fullmatch, names))


def _lines(count: int) -> str:
    return f"{count} line has" if count == 1 else f"{count} lines have"


def run_splitter(names: list[str]) -> Split | None:
    """For a wandb UI export (`run - metric`, `…__MIN`, `…__MAX`) what splits a line's values by run; else None."""
    known = frozenset(names)
    if not any(RUN_MARK in name and f"{name}__MIN" in known for name in names):
        return None
    owners = {}
    for name in names:
        run, mark, metric = name.rpartition(RUN_MARK)
        if mark:
            owners[name] = (run, metric)
    return partial(_by_run, owners)


def _by_run(owners: dict[str, tuple[str, str]], values: dict[str, float]) -> Iterator[tuple[str, dict[str, float]]]:
    shared = {name: value for name, value in values.items() if name not in owners}
    runs: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        if name in owners:
            run, metric = owners[name]
            runs.setdefault(run, dict(shared))[metric] = value
    return iter(runs.items())


def _text_lines(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if line.strip() and not line.startswith("#"))


def _looks_like_header(names: list[str]) -> bool:
    known = any(name.strip().lower() in ("step", "epoch", "loss", "iteration") or "/" in name for name in names)
    spaced = sum(" " in name.strip() for name in names)
    return spaced == 0 and (known or len(names) >= WIDE)


def _mostly_numbers(table: list[list[str]], names: list[str]) -> bool:
    """Whether most lines below the header fit it and hold numbers. A header alone must look like one."""
    if not table:
        return _looks_like_header(names)
    fitting = [cells for cells in table if len(cells) == len(names)]
    if len(fitting) < FEW and any(name.strip().count(" ") > 2 and RUN_MARK not in name for name in names):
        return False  # prose with commas
    if len(fitting) < (len(table) - 1) / 2 or not fitting:
        return len(table) == 1 and 0 < len(table[0]) < len(names) and number(table[0][0]) is not None
    cells = [cell.strip() for line in fitting for cell in line]
    numbers = sum(number(cell) is not None for cell in cells)
    blank = sum(cell.lower() in BLANKS and number(cell) is None for cell in cells)
    return numbers > 0 and (numbers + blank) * 2 >= len(cells)
