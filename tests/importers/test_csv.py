"""What the reader of CSV tables promises."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from gradwatch.importers.base import Row
from gradwatch.importers.csv_table import CsvTable
from gradwatch.importers.source import Source


def read(tmp_path: Path, text: str) -> tuple[list[Row], list[str]]:
    path = tmp_path / "progress.csv"
    path.write_text(text, newline="")
    source = Source(path)
    assert CsvTable().recognises(source.head())
    return list(CsvTable().rows(source)), source.all_warnings()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blanks_are_absent_whatever_delimiter_and_line_end(tmp_path: Path, delimiter: str, newline: str) -> None:
    lines = ["step,train/solver/loss,val", "1,0.5,", "2,,0.7"]
    rows, warnings = read(tmp_path, newline.join(line.replace(",", delimiter) for line in lines) + newline)
    assert [row.values for row in rows] == [{"step": 1.0, "train/solver/loss": 0.5}, {"step": 2.0, "val": 0.7}]
    assert warnings == []


def test_words_for_not_finite_and_wrapped_numbers_are_numbers(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "a,b,c,d,e,f\nnan,-Infinity,None,np.float64(0.5),\"tensor(0.25, device='cuda')\",x_1\n")
    values = rows[0].values
    assert math.isnan(values.pop("a"))
    assert values == {"b": -math.inf, "d": 0.5, "e": 0.25}


def test_a_wandb_export_gives_one_row_a_run_and_line(tmp_path: Path) -> None:
    text = (
        '"Step","run - a - loss","run - a - loss__MIN","run - a - loss__MAX",'
        '"b - loss","b - loss__MIN","b - loss__MAX"\n'
        '"1","0.5","0.4","0.6","","",""\n"2","0.3","0.3","0.3","0.9","0.9","0.9"\n'
    )
    rows, _ = read(tmp_path, text)
    assert [(row.run, row.values["Step"], row.values["loss"]) for row in rows] == [
        ("run - a", 1.0, 0.5),
        ("run - a", 2.0, 0.3),
        ("b", 2.0, 0.9),
    ]
    assert rows[0].values == {"Step": 1.0, "loss": 0.5, "loss__MIN": 0.4, "loss__MAX": 0.6}


def test_a_header_that_comes_again_is_a_restart_and_may_bring_columns(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, "step,loss\n1,0.5\n2,0.4\nstep,loss\n1,0.6\nstep,loss,kl\n2,0.7,0.1\n")
    assert [row.values for row in rows] == [
        {"step": 1.0, "loss": 0.5},
        {"step": 2.0, "loss": 0.4},
        {"step": 1.0, "loss": 0.6},
        {"step": 2.0, "loss": 0.7, "kl": 0.1},
    ]
    assert warnings[0] == "the header comes again at line 4: the run was restarted there"


def test_ragged_lines_are_read_and_said_and_a_half_written_last_one_is_skipped(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, "step,loss,kl\n1,0.5,0.1\n2,0.4\n3,0.3,0.1,9\n4,0.2,0.1\n5,0.")
    assert [row.values["step"] for row in rows] == [1.0, 2.0, 3.0, 4.0]
    assert warnings == [
        "the last line (6) is half written and was skipped",
        "2 lines have not 3 cells as the header has; the first is line 3",
    ]


def test_a_quoted_cell_may_hold_delimiters_and_line_breaks_and_a_stray_quote_ends_nothing(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, 'step,note,loss\n1,"a, ""b""\nc",0.5\n2,plain,0.4\n')
    assert [row.values for row in rows] == [{"step": 1.0, "loss": 0.5}, {"step": 2.0, "loss": 0.4}]
    stray, _ = read(tmp_path, "step,note,loss\n" + '1,5" disk,0.5\n' + "2,,0.4\n" * 40)
    assert len(stray) == 41


def test_the_wall_clock_comes_from_its_column(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, "_step,_timestamp,loss\n0,1700000000.5,1\n")
    assert rows[0].wall_time == 1700000000.5


def test_very_wide_tables_and_very_long_names_are_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    names = [f"train/agent_{place}" for place in range(100_000)]
    wide, _ = read(tmp_path, ",".join(names) + "\n" + ",".join(["0.5"] * len(names)) + "\n")
    long, _ = read(tmp_path, f'step,"{"n" * 10_000}"\n1,2\n')
    assert len(wide[0].values) == 100_000
    assert long[0].values["n" * 10_000] == 2.0
    assert csv.field_size_limit() == limit


def test_a_cell_beyond_the_csv_limit_costs_only_its_line(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, 'step,note,loss\n1,,0.5\n2,"' + "x" * 200_000 + '",0.4\n3,,0.3\n')
    assert [row.values["step"] for row in rows] == [1.0, 3.0]
    assert "the first is line 3" in warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        '#{"t_start": 1.5}\nr,l,t\n1,2,3\n2,3,4\n',
        '{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n',
        "2025-07-18 19:09:09,710 INFO a\n2025-07-18 19:09:10,710 INFO b\n",
        "Loading data, please wait\nEpoch 1, loss 0.5\nEpoch 2, loss 0.4\n",
        "| a | b |\n| 1 | 2 |\n",
        "1,2,3\n4,5,6\n",
        "name,text\nx,hello\ny,world\n",
        "",
    ],
)
def test_consoles_texts_and_headless_numbers_are_no_tables(text: str) -> None:
    assert not CsvTable().recognises(text.encode())
