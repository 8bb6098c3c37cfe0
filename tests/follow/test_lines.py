"""A log of lines that is written while it is followed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gradwatch.schema import Event

TRAINING = """
import json, sys, time
with open(sys.argv[1], "a") as log:
    for step in range(int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps({"step": step, "loss": 1 / (step + 1)}), file=log, flush=True)
        input()
"""


def add(path: Path, *lines: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as log:
        log.writelines(f"{line}\n" for line in lines)


def jsonl(steps: Iterable[int], **more: float) -> list[str]:
    extra = "".join(f', "{key}": {value}' for key, value in more.items())
    return [f'{{"step": {step}, "loss": {step}.5{extra}}}' for step in steps]


def test_a_line_is_there_soon_after_a_training_has_written_it(following: Any) -> None:
    log = following.folder / "run.jsonl"
    following.start()
    with subprocess.Popen([sys.executable, "-c", TRAINING, str(log), "0", "4"], stdin=subprocess.PIPE) as training:
        assert training.stdin is not None
        following.has("run", "loss", 0)
        for step in range(1, 4):
            training.stdin.write(b"\n")
            training.stdin.flush()
            asked = time.monotonic()
            following.has("run", "loss", *range(step + 1))
            assert time.monotonic() - asked < 5
        training.stdin.write(b"\n")
    assert following.points("run")["loss", 1] == [(step, 1 / (step + 1)) for step in range(4)]


def test_a_line_is_read_once_it_is_complete(following: Any) -> None:
    log = following.folder / "run.log"
    add(log, "step 1: loss=0.5", "step 2: loss=0.4")
    with log.open("ab") as out:
        out.write(b"step 3: loss=0.2")
    following.start()
    following.has("run", "loss", 1, 2)
    with log.open("ab") as out:
        out.write(b"5\n")
    following.has("run", "loss", 1, 2, 3)
    assert following.points("run")["loss", 1][-1] == (3, 0.25)


def test_a_character_that_is_cut_in_two_is_one_character(following: Any) -> None:
    log = following.folder / "run.jsonl"
    line = '{"step": 1, "größe": 2.5}\n'.encode()
    cut = line.index("ö".encode()) + 1
    log.write_bytes(b'{"step": 0, "loss": 1.5}\n' + line[:cut])
    following.start()
    following.has("run", "loss", 0)
    with log.open("ab") as out:
        out.write(line[cut:])
    following.has("run", "größe", 1)


def test_values_that_are_not_finite_arrive(following: Any) -> None:
    add(following.folder / "run.jsonl", '{"step": 1, "loss": NaN}', '{"step": 2, "loss": Infinity}', '{"step": 3, "loss": -0.0}')
    following.start()
    following.has("run", "loss", 1, 2, 3)
    assert [str(value) for _, value in following.points("run")["loss", 1]] == ["nan", "inf", "-0.0"]


def test_a_log_whose_writer_is_renamed_away_goes_on_in_the_new_file(following: Any) -> None:
    log = following.folder / "run.jsonl"
    following.start(log)
    with log.open("a") as old:
        old.write("\n".join(jsonl(range(3))) + "\n")
        old.flush()
        following.has("run", "loss", 0, 1, 2)
        log.rename(log.with_suffix(".1"))
        old.write("\n".join(jsonl([3])) + "\n")  # a writer that has not noticed yet
    add(log, *jsonl([4, 5]))
    following.has("run", "loss", 0, 1, 2, 3, 4, 5)
    add(log, *jsonl([6]))
    following.has("run", "loss", 0, 1, 2, 3, 4, 5, 6)
    following.restart(path=log)
    add(log, *jsonl([7]))
    following.has("run", "loss", *range(8))
    assert following.written("run") == 8


def test_a_log_that_is_copied_and_cut_goes_on(following: Any) -> None:
    log = following.folder / "run.jsonl"
    add(log, *jsonl(range(30)))
    following.start(log)
    following.has("run", "loss", *range(30))
    with log.open("r+b") as out:
        out.truncate(0)
    add(log, *jsonl([30, 31]))
    following.has("run", "loss", *range(32))
    assert following.written("run") == 32


def test_a_training_that_starts_its_log_anew_is_another_attempt(following: Any) -> None:
    log = following.folder / "run.jsonl"
    add(log, *jsonl(range(5)))
    following.start()
    following.has("run", "loss", *range(5))
    log.write_text("\n".join(jsonl(range(2), reward=1.0)).replace(".5", ".7") + "\n")
    following.has("run", "loss", 0, 1, attempt=2)
    assert following.points("run")["loss", 2] == [(0, 0.7), (1, 1.7)]
    assert [one.status for one in following.query.attempts(following.run("run"))] == ["interrupted", "running"]


def test_a_training_that_goes_back_in_the_same_file_is_another_attempt(following: Any) -> None:
    log = following.folder / "run.jsonl"
    add(log, *jsonl(range(5)))
    following.start()
    following.has("run", "loss", *range(5))
    add(log, *jsonl(range(3, 7)))
    following.has("run", "loss", 3, 4, 5, 6, attempt=2)
    following.restart()
    add(log, *jsonl([7]))
    following.has("run", "loss", 3, 4, 5, 6, 7, attempt=2)
    assert following.written("run") == 10


def test_a_table_that_is_written_anew_with_another_column_is_no_restart(following: Any) -> None:
    log = following.folder / "metrics.csv"
    log.write_text("step,loss\n1,0.5\n2,0.4\n")
    following.start()
    following.has("logs", "loss", 1, 2)
    log.write_text("step,accuracy,loss\n1,,0.5\n2,,0.4\n3,0.9,0.3\n")
    following.has("logs", "loss", 1, 2, 3)
    following.has("logs", "accuracy", 3)
    assert following.written("logs") == 4


def test_bars_and_dicts_of_a_trainer_appear_as_they_are_drawn(following: Any) -> None:
    log = following.folder / "train.out"
    following.start(log)
    with log.open("a", newline="") as out:
        for step in (1, 2, 3):
            text = f"{{'loss': 0.{step}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {step / 10:.2f}}}"
            bar = f"\r {step}0%|█         | {step}/10 [00:0{step}<00:09,  1.00s/it]"
            out.write(f"{bar}\r                                                  \r{text}\n{bar}\r")
            out.flush()
            following.has("logs", "loss", *range(1, step + 1))


def test_dicts_without_any_bar_appear_too(following: Any) -> None:
    log = following.folder / "train.out"
    add(log, "{'loss': 0.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.01}")
    following.start(log)
    following.has("logs", "loss", 1)
    add(log, "{'loss': 0.4, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.02}")
    following.has("logs", "loss", 1, 2)


def test_what_a_few_rows_made_believe_is_corrected(following: Any) -> None:
    log = following.folder / "run.jsonl"
    add(log, '{"epoch": 3, "loss": 0.5}')
    following.start()
    following.has("run", "loss", 3)
    add(log, *(f'{{"epoch": {epoch}, "loss": 0.{row}}}' for row, epoch in enumerate((3, 3, 3, 4, 4), 1)))
    following.has("run", "loss", 1, 2, 3, 4, 5, 6, attempt=2)
    events: list[Event] = following.query.events(following.run("run"))
    assert any("another step axis" in one.message for one in events if one.kind == "read_again")


def test_a_file_whose_format_cannot_be_told_yet_is_waited_for(following: Any) -> None:
    log = following.folder / "progress.csv"
    log.write_text("step,lo")
    following.start()
    following.until(lambda: following.state("progress.csv") == "waiting")
    with log.open("a") as out:
        out.write("ss\n1,0.5\n")
    following.has("logs", "loss", 1)


def test_a_log_is_told_again_when_it_looks_like_another_format(following: Any) -> None:
    log = following.folder / "metrics"
    add(log, "starting up, please wait")
    following.start()
    following.until(lambda: following.state("metrics") == "following")
    add(log, *jsonl(range(5)))
    following.has("logs", "loss", *range(5))


def test_a_packed_file_is_refused_with_advice(following: Any) -> None:
    (following.folder / "run.jsonl.gz").write_bytes(b"\x1f\x8b\x08\0")
    following.start()
    following.until(lambda: following.state("run.jsonl.gz") == "refused")
    assert "gradwatch import" in following.statuses()[0].trouble


@pytest.mark.parametrize("rows", [1, 300, 30_000])
def test_a_log_that_is_there_already_is_read_whole(following: Any, rows: int) -> None:
    add(following.folder / "run.jsonl", *jsonl(range(rows)))
    following.start()
    following.until(lambda: following.written("run") == rows)
    following.has("run", "loss", *range(rows))
