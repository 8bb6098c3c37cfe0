"""However a log's bytes come, and whenever the reader looks: in the end its points are those of the whole file."""

from __future__ import annotations

import math
import threading
from collections import deque
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwatch.follow.reading import Deliver, GrowingReading, recognise_growing
from gradwatch.importers.reader import LogFile
from gradwatch.importers.source import MisjudgedError, Source
from gradwatch.schema import Block, Series

FILES = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "files"
NAMES = (
    "console-03.log",
    "console-dict-03.log",
    "console-dict-06.log",
    "console-dict-07.log",
    "csv-02.csv",
    "csv-08.csv",
    "jsonl-02.jsonl",
    "jsonl-06.jsonl",
    "monitor-csv-01.csv",
    "sb3-table-02.log",
    "tensorboard-05.tfevents",
    "tensorboard-09.tfevents",
    "verl-console-03.log",
)
LONGEST = 100_000
"""Bytes of a log that are read; it may end anywhere."""

Table = dict[tuple[str, Series], list[tuple[int, int, int, int]]]


class Written(GrowingReading):
    """A reading of a file to which the next piece is added whenever the reading has come to its end."""

    pieces: deque[bytes]

    def _at_end(self, whole: bool) -> None:
        super()._at_end(whole)
        if whole and self.pieces:
            add(self.source.path, self.pieces.popleft())
        elif whole:
            self.source.end_after = 0.0


def add(path: Path, piece: bytes) -> None:
    with path.open("ab") as log:
        log.write(piece)


def table(blocks: list[tuple[str, Block]]) -> Table:
    """Every point bit for bit, by run and series, in the order in which it was read."""
    found: Table = {}
    for run, block in blocks:
        times, values = (memoryview(column).cast("B").cast("q") for column in (block.wall_time, block.value))
        for index, *point in zip(block.index, block.step, times, values, block.flags, strict=True):
            found.setdefault((run, block.series[index]), []).append((point[0], point[1], point[2], point[3]))
    return found


def keeping(blocks: list[tuple[str, Block]]) -> Deliver:
    return lambda run, _log, block: blocks.append((run, block))


def read_live(path: Path, content: bytes, cuts: set[int]) -> Table:
    """The points of the last reading: one that was misjudged is begun again."""
    ends = sorted({*cuts, len(content)})
    pieces = deque(content[start:end] for start, end in zip([0, *ends], ends, strict=False))
    path.write_bytes(b"")
    while True:
        importer = recognise_growing(Source(path).head())
        while importer is None and pieces:
            add(path, pieces.popleft())
            importer = recognise_growing(Source(path).head())
        assert importer is not None
        blocks: list[tuple[str, Block]] = []
        reading = Written(path, importer, keeping(blocks), threading.Event(), math.inf if pieces else 0.0)
        reading.pieces = pieces
        try:
            reading.read()
        except MisjudgedError:
            continue
        return table(blocks)


@pytest.mark.skipif(not FILES.is_dir(), reason="the corpus of real logs does not lie beside the checkout")
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_real_log_that_comes_in_pieces_has_the_points_of_the_whole(name: str, tmp_path: Path, data: st.DataObject) -> None:
    content = (FILES / name).read_bytes()[:LONGEST]
    whole = tmp_path / f"whole-{name}"
    whole.write_bytes(content)
    places = st.one_of(st.integers(1, min(4000, len(content) - 1)), st.integers(1, len(content) - 1))
    cuts = data.draw(st.sets(places, max_size=40))
    assert read_live(tmp_path / name, content, cuts) == table(list(LogFile(whole).blocks()))


LINES = st.lists(
    st.sampled_from(
        (
            "step 1: loss=0.5",
            "step 2: loss=0.25 acc=0.5",
            "{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}",
            "\r 10%|█ | 1/10 [00:01<00:09]\r                    \r{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}",
            "\r 20%|██ | 2/10 [00:02<00:08]",
            "step:3 - actor/loss:0.5 - größe:1",
            "lr: 0.1, batch size: 7",
            "",
        )
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, data=st.data())
def test_a_console_of_mixed_forms_that_comes_in_pieces_has_the_points_of_the_whole(
    tmp_path: Path, lines: list[str], data: st.DataObject
) -> None:
    content = ("step 0: loss=1.5\n" + "\n".join(lines) + "\n").encode()
    cuts = data.draw(st.sets(st.integers(1, len(content)), max_size=20))
    path = tmp_path / "log"
    path.write_bytes(content)
    expected = table(list(LogFile(path).blocks()))
    assert read_live(path, content, cuts) == expected
