"""A log that comes row by row leads to the findings that `diagnose` has of the whole, however it is cut and whatever restarts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from gradwatch.cli.report import diagnose, in_order
from gradwatch.importers.axis import Axes
from gradwatch.importers.base import Row
from gradwatch.importers.blocks import Blocks
from gradwatch.importers.reader import recognise
from gradwatch.importers.source import Source
from gradwatch.schema import Block, Finding, RunInfo
from gradwatch.store import open_store
from gradwatch.watcher import Watcher

FILES = Path(__file__).resolve().parents[1].parent / "shared" / "corpus" / "files"
SHORT = (
    "console-03.log",
    "console-dict-02.log",
    "console-dict-03.log",
    "console-dict-04.log",
    "csv-03.csv",
    "json-dict-of-lists-01.json",
    "json-list-01.json",
    "jsonl-01.jsonl",
    "jsonl-04.jsonl",
    "jsonl-07.jsonl",
    "jsonl-08.jsonl",
    "sb3-table-02.log",
    "tensorboard-09.tfevents",
    "trainer-state-02.json",
    "trainer-state-03.json",
    "trainer-state-04.json",
    "trainer-state-06.json",
    "trainer-state-17.json",
    "trainer-state-19.json",
    "verl-console-02.log",
)
"""Of at most 120 rows: each row is committed and judged by itself as well, which takes 20 ms."""
LONG = ("csv-07.csv", "csv-08.csv", "tensorboard-01.tfevents", "tensorboard-10.tfevents", "trainer-state-08.json")
CUTS = [(name, size) for size in (1, 7, 1000) for name in SHORT] + [(name, size) for size in (7, 1000) for name in LONG]

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the corpus of real logs does not lie beside the checkout")


def bits(findings: list[Finding]) -> list[bytes]:
    """Each finding as bytes: NaN equals NaN, and 0.0 is not -0.0."""
    return sorted(msgspec.msgpack.encode(one) for one in findings)


@lru_cache
def diagnosed(name: str) -> list[Finding]:
    (report,) = diagnose(FILES / name)
    return report.findings


def rows(source: Source) -> Iterator[Row]:
    importer = recognise(source.head())
    assert importer is not None
    return importer.rows(source)


def batches(path: Path, size: int) -> list[Block]:
    """The file's points, in blocks of `size` rows."""
    source = Source(path)
    blocks, placed = Blocks(), Axes(source).place(rows(source))
    found: list[Block] = []
    while chunk := list(islice(placed, size)):
        found += (block for _, block in blocks.of(chunk))
    return found


@pytest.mark.parametrize(("name", "size"), CUTS, ids=[f"{name}-{size}" for name, size in CUTS])
def test_what_is_found_live_is_what_diagnose_finds(name: str, size: int, tmp_path: Path) -> None:
    parts = batches(FILES / name, size)
    half = len(parts) // 2
    for some in (parts[:half], parts[half:]):  # each half in a process of its own
        store = open_store(tmp_path)
        store.put_run(RunInfo("r", "r"))
        watcher = Watcher(store, "r")
        for block in some:
            store.append("r", block)
            watcher.catch_up()
        found = in_order(store.findings("r"))
        store.close()
    assert bits(found) == bits(diagnosed(name))


def test_the_files_have_findings_of_several_kinds() -> None:
    kinds = {one.kind for name in SHORT for one in diagnosed(name)}
    assert {"nonfinite", "norm_spike", "reward_collapse", "val_cliff"} <= kinds
