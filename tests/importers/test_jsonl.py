"""What the readers of one JSON object a line promise."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.importers.base import Importer, Row
from gradwatch.importers.jsonl import Jsonl, VerlJsonl
from gradwatch.importers.source import Source


def read(tmp_path: Path, text: str, importer: Importer | None = None) -> tuple[list[Row], list[str]]:
    importer = importer or Jsonl()
    path = tmp_path / "log.jsonl"
    path.write_text(text, newline="")
    source = Source(path)
    assert importer.recognises(source.head())
    return list(importer.rows(source)), source.all_warnings()


def test_nested_keys_short_lists_flags_and_quoted_numbers_become_numbers(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, '{"step": 1, "a": {"b": "0.25", "c": [1, 2]}, "ok": true, "lr": "1e-5", "x": null}\r\n')
    assert rows[0].values == {"step": 1.0, "a/b": 0.25, "a/c/0": 1.0, "a/c/1": 2.0, "ok": 1.0, "lr": 1e-5}
    assert rows[0].nulls == ()
    assert warnings == []


def test_durations_dates_texts_and_long_lists_are_left_out(tmp_path: Path) -> None:
    line = f'{{"loss": 1, "elapsed_time": "0:03:29", "date": "2025-01-02", "t": "hi", "h": {list(range(17))}}}\n'
    rows, _ = read(tmp_path, line * 2)
    assert rows[0].values == {"loss": 1.0}


def test_wrapped_numbers_and_words_for_nan_are_numbers(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"a": "np.float64(0.5)", "b": "tensor(2., device=\'cuda:0\')", "c": "nan", "d": NaN, "e": 1e999}\n')
    assert (rows[0].values["a"], rows[0].values["b"], rows[0].values["e"]) == (0.5, 2.0, math.inf)
    assert math.isnan(rows[0].values["c"])
    assert math.isnan(rows[0].values["d"])


def test_lines_of_settings_are_rows_without_values(tmp_path: Path) -> None:
    rows, _ = read(
        tmp_path,
        '{"event": "config", "lr": 0.1}\n{"event": "step", "step": 0, "loss": 1}\n{"event": "done", "num_steps": 51}\n',
    )
    assert [row.values for row in rows] == [{}, {"step": 0.0, "loss": 1.0}, {}]
    assert rows[0].config == {"event": "config", "lr": 0.1}


def test_a_half_written_last_line_is_said_and_loses_nothing_else(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, '{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    assert [row.values["step"] for row in rows] == [1.0, 2.0]
    assert warnings == ["the last line (3) is half written or no JSON object, and was skipped"]


def test_other_lines_are_counted_and_objects_sharing_a_line_are_all_read(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, '{"step": 1}\nhello\n{"step": 2}{"step": 3}\n\0\0{"step": 4}\n')
    assert [row.values["step"] for row in rows] == [1.0, 2.0, 3.0, 4.0]
    assert warnings == ["1 lines are no JSON objects and were skipped; the first is line 2"]


def test_only_a_plausible_unix_time_is_the_wall_clock(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"_timestamp": 1.7e9, "a": 1}\n{"timestamp": 12.5}\n{"wall_time": 1.7e12}\n')
    assert rows[0].wall_time == 1.7e9
    assert math.isnan(rows[1].wall_time)
    assert math.isnan(rows[2].wall_time)


def test_the_last_of_duplicated_keys_wins_and_half_a_surrogate_pair_is_harmless(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, '{"a": 1, "a": 2, "\\ud800": 3}\n')
    assert rows[0].values == {"a": 2.0, "?": 3.0}


def test_verl_says_the_step_itself_and_null_stands_for_not_finite(tmp_path: Path) -> None:
    rows, warnings = read(
        tmp_path,
        '{"step": 7, "data": {"actor/grad_norm": null, "actor/lr": 1e-6}}\n{"step": 8, "data": {}}\n',
        VerlJsonl(),
    )
    assert [row.step for row in rows] == [7, 8]
    assert rows[0].nulls == ("actor/grad_norm",)
    assert math.isnan(rows[0].values["actor/grad_norm"])
    assert rows[0].values["actor/lr"] == 1e-6
    assert warnings == []


def test_each_of_the_two_leaves_the_other_its_files() -> None:
    assert not Jsonl().recognises(b'{"step": 7, "data": {"a": 1}}\n')
    assert not VerlJsonl().recognises(b'{"step": 7, "loss": 1}\n')


@pytest.mark.parametrize(
    "text",
    [
        'Loading model\n{"step": 1, "loss": 2}\nEpoch 1\nsaved\n{"step": 2, "loss": 2}\n',
        "{'loss': 0.5, 'epoch': 0.1}\n{'loss': 0.4, 'epoch': 0.2}\n",
        '[{"step": 1}]',
        '{"log_history": [{"step": 1}]}',
        '{"steps": [{"step": 1}]}',
        '{\n  "loss": [1, 2],\n  "kl": [1, 2]\n}',
        "",
    ],
)
def test_consoles_and_whole_documents_are_not_lines_of_objects(text: str) -> None:
    assert not Jsonl().recognises(text.encode())


@pytest.mark.parametrize("cut", [14, 20, 30, 45])
def test_a_beginning_that_is_cut_is_recognised(cut: int) -> None:
    assert Jsonl().recognises(b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'[:cut])
