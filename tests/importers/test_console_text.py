"""Console text is cleaned and unwrapped before anyone reads it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from gradwatch.importers.console_text import CONTINUES, CURSOR_UP, MAX_TEXT, console_lines, looks_like_text
from gradwatch.importers.source import Source


def lines(tmp_path: Path, content: str | bytes) -> list[str]:
    path = tmp_path / "run.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(console_lines(Source(path)))


def test_colours_are_removed(tmp_path: Path) -> None:
    assert lines(tmp_path, "\x1b[34m\x1b[1mwandb\x1b[39m\x1b[22m: ok\n") == ["wandb: ok"]


def test_moving_the_cursor_up_is_kept_as_one_blank_character(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "75/75\x1b[A\n")
    assert line == f"75/75{CURSOR_UP}"
    assert CURSOR_UP.isspace()


@pytest.mark.parametrize(
    "prefix",
    [
        "(TaskRunner pid=293776) ",
        "\x1b[36m(TaskRunner pid=293776)\x1b[0m ",
        "(WorkerDict pid=12, ip=10.0.0.1) ",
        "(pid=) ",
    ],
)
def test_ray_prefixes_are_removed(tmp_path: Path, prefix: str) -> None:
    assert lines(tmp_path, f"{prefix}step:1 - a:2\n{prefix}x\n") == ["step:1 - a:2", "x"]


def test_rays_count_of_repetitions_is_removed(tmp_path: Path) -> None:
    assert lines(tmp_path, "(W pid=1) hello [repeated 7x across cluster]\n") == ["hello"]


def test_a_parenthesis_within_a_line_stays(tmp_path: Path) -> None:
    assert lines(tmp_path, "killed (pid=12) now\n") == ["killed (pid=12) now"]


def test_carriage_returns_stay_inside_a_line(tmp_path: Path) -> None:
    assert lines(tmp_path, "a\r   \rb\nc\n") == ["a\r   \rb", "c"]


def test_a_last_line_without_an_end_is_read(tmp_path: Path) -> None:
    assert lines(tmp_path, "a\nb") == ["a", "b"]


def test_an_endless_line_is_skipped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"x" * (MAX_TEXT * 3) + b"\nlast\n")
    source = Source(path)
    assert list(console_lines(source))[-1] == "last"
    assert "longer than 4 MiB" in source.warnings[0]


def test_bars_without_a_line_end_are_read_piece_by_piece(tmp_path: Path) -> None:
    bars = "".join(f"\r{n}/9 [" for n in range(600_000))
    read = [line.removeprefix(CONTINUES).replace("\r", "") for line in lines(tmp_path, bars)]
    assert len(read) > 1
    assert "".join(read) == bars.replace("\r", "")


def test_reading_holds_a_few_blocks_only(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"nothing of interest here\n" * 1_200_000)
    tracemalloc.start()
    count = sum(1 for _ in console_lines(Source(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count >= 1_200_000
    assert peak < 20_000_000


def wrapped(*records: tuple[str, str]) -> str:
    rows = [json.dumps({"stream_name": name, "time": 1.5, "data": data}, separators=(",", ":")) for name, data in records]
    return "[" + "\n,".join(rows) + "\n]"


def test_a_notebook_services_records_are_unwrapped(tmp_path: Path) -> None:
    assert lines(tmp_path, wrapped(("stdout", "a\nb\n"), ("stderr", "c\n"))) == ["a", "b", "c"]


def test_a_line_split_over_records_is_joined_within_its_stream(tmp_path: Path) -> None:
    text = wrapped(("stdout", "{'loss': "), ("stderr", "warning\n"), ("stdout", "0.5}\n"))
    assert lines(tmp_path, text) == ["warning", "{'loss': 0.5}"]


def test_a_bar_is_passed_on_before_its_line_ends(tmp_path: Path) -> None:
    text = wrapped(("stderr", "\r1/9 [\r   \r"), ("stdout", "{}\n"), ("stderr", "1/9 ["))
    assert lines(tmp_path, text) == ["\r1/9 [\r   ", "{}", "1/9 ["]


def test_a_damaged_record_is_skipped_and_said(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(wrapped(("stdout", "a\n"))[:-2] + '\n,{"stream_name": "std')
    source = Source(path)
    assert list(console_lines(source)) == ["a"]
    assert source.warnings == ["a record of the notebook log is no JSON and was skipped"]


NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "outputs": [
                {"name": "stdout", "output_type": "stream", "text": ["a\n", "{'loss': 1}\n"]},
                {"name": "stderr", "output_type": "stream", "text": "one\n"},
            ],
            "source": ["print('loss')\n"],
        }
    ],
    "nbformat": 4,
}


@pytest.mark.parametrize("indent", [1, 2, None])
def test_the_outputs_of_a_notebook_file_are_read(tmp_path: Path, indent: int | None) -> None:
    padded = {**NOTEBOOK, "metadata": {"note": "x" * 200}}
    assert [line for line in lines(tmp_path, json.dumps(padded, indent=indent)) if line] == ["a", "{'loss': 1}", "one"]


@pytest.mark.parametrize("head", [b"step 1\n", "50%|█████|\r".encode(), b"\0\0\0\0line\n", b'[{"stream_name":"stdout"'])
def test_text_is_recognised(head: bytes) -> None:
    assert looks_like_text(head)


@pytest.mark.parametrize("head", [b"", b"\0" * 100, b"PAR1\x15\x04\x15\x00\0\0\0", bytes(range(256)) * 4])
def test_binary_is_not_recognised(head: bytes) -> None:
    assert not looks_like_text(head)
