"""What the readers of whole JSON documents promise: lists of objects, and objects of columns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.importers.base import Importer, Row
from gradwatch.importers.json_records import JsonDictOfLists, JsonList
from gradwatch.importers.source import Source


def read(tmp_path: Path, importer: Importer, text: str) -> tuple[list[Row], list[str]]:
    path = tmp_path / "history.json"
    path.write_text(text)
    source = Source(path)
    assert importer.recognises(source.head())
    return list(importer.rows(source)), source.all_warnings()


def test_a_list_of_objects_gives_a_row_an_object(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, JsonList(), '[{"step": 1, "loss": 0.5, "ok": true},\n {"step": 2, "kl": null, "r": {"a": "1e-5"}}]')
    assert [row.values for row in rows] == [{"step": 1.0, "loss": 0.5, "ok": 1.0}, {"step": 2.0, "r/a": 1e-5}]


def test_a_list_under_any_key_is_read_and_the_rest_is_settings(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, JsonList(), '{"config": {"lr": 0.1}, "steps": [{"step": 1, "loss": 0.5}], "name": "a"}')
    assert [row.values for row in rows] == [{"step": 1.0, "loss": 0.5}, {}]
    assert rows[-1].config == {"config": {"lr": 0.1}, "name": "a"}


def test_a_second_list_keeps_its_own_step_axis_and_names(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, JsonList(), '{"train": [{"step": 9, "loss": 0.5}], "eval": [{"step": 5, "loss": 0.7}]}')
    assert [(row.axis, row.values) for row in rows] == [
        ("", {"step": 9.0, "loss": 0.5}),
        ("eval", {"step": 5.0, "eval/loss": 0.7}),
    ]


def test_a_cut_list_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, JsonList(), '[{"step": 1, "loss": 0.5}, {"step": 2, "lo')
    assert [row.values for row in rows] == [{"step": 1.0, "loss": 0.5}]
    assert "ends inside a value" in warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        '[{"stream_name":"stdout","time":1.5,"data":"loss 1"}\n,{"stream_name":"stdout","time":2,"data":"x"}]',
        '{"cells": [{"cell_type": "code", "execution_count": 1}], "nbformat": 4}',
        '{"log_history": [{"step": 1}]}',
        '{"step": 1, "groups": [{"reward": 1}]}\n{"step": 2, "groups": [{"reward": 2}]}\n',
        '[{"role": "user", "content": "hi"}]',
        "[1, 2, 3]",
        "[INFO] step 1",
        "",
    ],
)
def test_what_belongs_to_others_is_not_a_list_of_records(text: str) -> None:
    assert not JsonList().recognises(text.encode())


def test_columns_give_a_row_a_place_with_the_place_as_step(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, JsonDictOfLists(), '{"loss": [0.5, NaN, null], "reward": [1, 2, 3], "seed": 7}')
    assert [row.step for row in rows] == [1, 2, 3, None]
    assert rows[0].values == {"loss": 0.5, "reward": 1.0}
    assert math.isnan(rows[1].values["loss"])
    assert rows[2].values == {"reward": 3.0}
    assert rows[3].config == {"seed": 7}


def test_a_column_that_rises_and_is_named_like_a_step_is_the_step(tmp_path: Path) -> None:
    stepped, _ = read(tmp_path, JsonDictOfLists(), '{"epoch": [0, 1, 2], "loss": [3, 2, 1]}')
    lengths, _ = read(tmp_path, JsonDictOfLists(), '{"steps": [50, 12, 31], "return": [3, 2, 1]}')
    assert [row.step for row in stepped] == [None, None, None]
    assert [row.step for row in lengths] == [1, 2, 3]


def test_columns_inside_objects_keep_their_path(tmp_path: Path) -> None:
    inner = str(list(range(20)))
    rows, _ = read(tmp_path, JsonDictOfLists(), f'{{"train": {{"loss": {inner}}}, "betas": [0.9, 0.999]}}')
    assert len(rows) == 20
    assert rows[19].values == {"train/loss": 19.0}


def test_columns_of_different_lengths_are_said(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, JsonDictOfLists(), '{"loss": [3, 2, 1], "eval": [3, 2]}')
    assert rows[2].values == {"loss": 1.0}
    assert "2 to 3 entries" in warnings[0]


@pytest.mark.parametrize("text", ['{"step": 1, "loss": 2, "w": [1, 2]}', '{"step": 1, "w": [1, 2]}\n{"step": 2}', "{}", "x"])
def test_records_with_a_short_list_are_no_columns(text: str) -> None:
    assert not JsonDictOfLists().recognises(text.encode())
