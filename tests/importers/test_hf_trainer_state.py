"""What the reader of `trainer_state.json` promises."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest

from gradwatch.importers.base import Row
from gradwatch.importers.source import Source
from gradwatch.importers.trainer_state import TrainerState


def read(tmp_path: Path, text: str) -> tuple[list[Row], list[str]]:
    path = tmp_path / "trainer_state.json"
    path.write_text(text, newline="")
    source = Source(path)
    assert TrainerState().recognises(source.head())
    rows = list(TrainerState().rows(source))
    return rows, source.all_warnings()


def test_the_history_comes_first_and_the_settings_last(tmp_path: Path) -> None:
    text = '{"best_metric": null, "log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": "0.25"}], "max_steps": 9}'
    rows, warnings = read(tmp_path, text)
    assert [row.values for row in rows] == [{"step": 1.0, "loss": 0.5}, {"step": 2.0, "loss": 0.25}, {}]
    assert rows[-1].config == {"max_steps": 9}
    assert warnings == []


def test_a_null_metric_is_not_finite_and_bare_nan_and_infinity_are_numbers(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{\r\n"log_history": [\r\n{"step": 1, "kl": null, "loss": NaN, "grad_norm": -Infinity}]\r\n}')
    assert rows[0].nulls == ("kl",)
    assert math.isnan(rows[0].values["kl"])
    assert math.isnan(rows[0].values["loss"])
    assert rows[0].values["grad_norm"] == -math.inf


@pytest.mark.parametrize("cut", [60, 75, 82])
def test_a_cut_file_gives_what_stands_before_the_cut_and_says_where(tmp_path: Path, cut: int) -> None:
    rows, warnings = read(tmp_path, '{"log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"step": 3}]}'[:cut])
    assert rows[0].values == {"step": 1.0, "loss": 0.5}
    assert "at character" in warnings[0]


def test_a_damaged_entry_costs_only_itself(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, '{"log_history": [{"step": 1}, {"step": 2, oops}, {"step": 3}], "max_steps": 3}')
    assert [row.values.get("step") for row in rows] == [1.0, 3.0, None]
    assert len(warnings) == 1


def test_nesting_beyond_the_decoder_is_damage_and_not_an_error(tmp_path: Path) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    rows, warnings = read(tmp_path, f'{{"log_history": [{{"step": 1}}, {deep}, {{"step": 3}}, {{"step": 4}}], "x": {deep}}}')
    assert [row.values["step"] for row in rows][:1] == [1.0]
    assert rows[-1].values["step"] == 4.0
    assert "nested" in warnings[0]


def test_an_integer_too_large_for_a_float_is_absent(tmp_path: Path) -> None:
    for digits in (400, 5000):
        rows, warnings = read(tmp_path, f'{{"log_history": [{{"step": 1, "tokens": {"9" * digits}}}]}}')
        assert rows[0].values == {"step": 1.0}
        assert "too large" in warnings[0]


def test_memory_does_not_grow_with_the_history(tmp_path: Path) -> None:
    entry = json.dumps({"step": 1, "loss": 0.5, "grad_norm": 1.5, "note": "x" * 2000})
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [' + ",\n".join([entry] * 10_000) + "]}")
    tracemalloc.start()
    count = sum(1 for _ in TrainerState().rows(Source(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 12 * 2**20 < path.stat().st_size


@pytest.mark.parametrize("text", ['[{"step": 1}]', '{"step": 1, "loss": 2}\n', '{"cells": []}', "loss 1", ""])
def test_other_files_are_not_recognised(text: str) -> None:
    assert not TrainerState().recognises(text.encode())


def test_a_head_cut_before_the_history_is_still_recognised() -> None:
    assert TrainerState().recognises(b'{"best_metric": null, "best_model_checkpoint": null, "ep')
