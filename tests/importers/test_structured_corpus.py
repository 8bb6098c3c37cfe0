"""The readers of structured logs against real files of public runs, where they lie beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradwatch.importers.base import Importer
from gradwatch.importers.csv_table import CsvTable
from gradwatch.importers.json_records import JsonDictOfLists, JsonList
from gradwatch.importers.jsonl import Jsonl, VerlJsonl
from gradwatch.importers.monitor_csv import MonitorCsv
from gradwatch.importers.source import Source
from gradwatch.importers.tensorboard_events import TensorboardEvents
from gradwatch.importers.trainer_state import TrainerState

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
STRUCTURED: tuple[Importer, ...] = (
    TrainerState(),
    JsonList(),
    JsonDictOfLists(),
    Jsonl(),
    VerlJsonl(),
    CsvTable(),
    MonitorCsv(),
    TensorboardEvents(),
)
OWN = {importer.format for importer in STRUCTURED}


def labels() -> list[dict[str, Any]]:
    if not (CORPUS / "labels.jsonl").exists():
        return []
    return [json.loads(line) for line in (CORPUS / "labels.jsonl").read_text().splitlines()]


LABELS = labels()
pytestmark = pytest.mark.skipif(not LABELS, reason="the sample logs do not lie beside this checkout")


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["file"])
def test_exactly_the_right_reader_claims_a_file_and_reads_its_rows(label: dict[str, Any]) -> None:
    source = Source(CORPUS / "files" / label["file"])
    claims = [importer for importer in STRUCTURED if importer.recognises(source.head())]
    expected = label["format"].split(":")[0]
    assert [importer.format for importer in claims] == ([expected] if expected in OWN else [])
    for importer in claims:
        rows = list(importer.rows(source))
        steps = {row.step for row in rows}
        assert (len(steps) if importer.format == "tfevents" else len(rows)) >= 0.98 * label["rows"]
        assert source.all_warnings() == []


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["file"])
def test_a_beginning_that_is_cut_anywhere_is_claimed_by_no_wrong_reader(label: dict[str, Any]) -> None:
    head = Source(CORPUS / "files" / label["file"]).head()
    expected = label["format"].split(":")[0]
    for size in (0, 1, 7, 50, 300, 2000, 30_000):
        claims = {importer.format for importer in STRUCTURED if importer.recognises(head[:size])}
        assert claims <= {expected}
