"""The console reader against real logs of public runs, where they lie beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradwatch.importers.base import Row
from gradwatch.importers.console import Console
from gradwatch.importers.source import Source

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
FORMS = ("hf_console_dict", "verl_console", "sb3_table", "generic_console")


def labels() -> list[dict[str, Any]]:
    if not (CORPUS / "labels.jsonl").exists():
        return []
    rows = [json.loads(line) for line in (CORPUS / "labels.jsonl").read_text().splitlines()]
    return [row for row in rows if row["format"] in FORMS]


LABELS = labels()
pytestmark = pytest.mark.skipif(not LABELS, reason="the corpus of real logs does not lie beside this checkout")


def read(name: str) -> tuple[list[Row], Source]:
    source = Source(CORPUS / "files" / name)
    return list(Console().rows(source)), source


def of_form(*forms: str) -> list[str]:
    return [label["file"] for label in LABELS if label["format"] in forms]


@pytest.mark.parametrize("label", LABELS, ids=[label["file"] for label in LABELS])
def test_every_labelled_row_is_read_and_the_form_is_named(label: dict[str, Any]) -> None:
    rows, source = read(label["file"])
    assert len(rows) >= 0.98 * label["rows"]
    assert source.format == label["format"]
    assert source.warnings == []


@pytest.mark.parametrize("name", of_form("verl_console", "sb3_table"))
def test_no_row_is_invented(name: str) -> None:
    (label,) = [label for label in LABELS if label["file"] == name]
    assert len(read(name)[0]) == label["rows"]


@pytest.mark.parametrize("name", of_form("hf_console_dict", "verl_console"))
def test_every_row_has_a_step_and_none_goes_back(name: str) -> None:
    steps = [row.step for row in read(name)[0]]
    known = [step for step in steps if step is not None]
    assert len(known) == len(steps)
    assert known == sorted(known)


@pytest.mark.parametrize("name", of_form("hf_console_dict"))
def test_steps_are_in_proportion_to_epochs(name: str) -> None:
    rows = read(name)[0]
    last = max(rows, key=lambda row: row.values["epoch"])
    assert last.step is not None
    ratio = last.step / last.values["epoch"]
    for row in rows:
        assert row.step is not None
        assert abs(row.step - ratio * row.values["epoch"]) <= 1 + ratio * 0.01 + 0.02 * row.step


@pytest.mark.parametrize("name", of_form("hf_console_dict"))
def test_losses_have_steps_of_their_own(name: str) -> None:
    steps = [row.step for row in read(name)[0] if "loss" in row.values]
    assert len(set(steps)) == len(steps)


def test_one_run_logged_three_ways_reads_the_same() -> None:
    rows = read("console-dict-07.log")[0]
    state = json.loads((CORPUS / "files" / "trainer-state-17.json").read_text())["log_history"]
    lines = [json.loads(line) for line in (CORPUS / "files" / "jsonl-13.jsonl").read_text().splitlines()]
    assert [row.step for row in rows] == [*range(5, 245, 5), 240]
    assert [row.step for row in rows] == [entry["step"] for entry in state] == [line["current_steps"] for line in lines]
    for row, entry, line in zip(rows, state, lines, strict=True):
        for key in ("loss", "learning_rate", "grad_norm"):
            assert row.values.get(key) == entry.get(key)
        assert row.values.get("loss") == line.get("loss")
