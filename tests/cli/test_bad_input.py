"""Whatever a path names, the command line answers with a report or with one message that says what, where and what to do."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gradwatch.cli import main
from gradwatch.store import open_store
from gradwatch.store.local import METADATA_FILE, POINTS_FILE

HANGS_AFTER = 30
STEPS = range(1, 120)
JSONL = "".join(json.dumps({"step": step, "loss": 1 / step, "grad_norm": 0.5}) + "\n" for step in STEPS)
CSV = "step,loss,grad_norm\n" + "".join(f"{step},{1 / step},0.5\n" for step in STEPS)
STATE = json.dumps(
    {"best_metric": None, "log_history": [json.loads(line) for line in JSONL.splitlines()], "max_steps": 120}, indent=1
)
CONSOLE = "".join(f"{{'loss': {1 / step}, 'grad_norm': 0.5, 'epoch': {step / 100}}}\n" for step in STEPS)
OTHER_TABLE = "epoch,val_loss,acc\n" + "".join(f"{epoch},0.1,0.9\n" for epoch in range(20))
PROSE = "# A project\n\nThis trains a model on 8 GPUs, see docs. Version 1.2.\n\n- step one: install\n\nAuthor: me, 2024.\n"
NAME = "n" * 10_000
WIDE = 100_000
TEXTS = {"jsonl": JSONL, "csv": CSV, "log": CONSOLE, "json": STATE}


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The command line, in this process, which is interrupted where it hangs."""

    def hangs(*_: object) -> None:
        raise AssertionError(f"no answer within {HANGS_AFTER} s")

    def called(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["gradwatch", *map(str, arguments)])
        signal.alarm(HANGS_AFTER)
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.alarm(0)
        return Answer(code, *capsys.readouterr())

    before = signal.signal(signal.SIGALRM, hangs)
    yield called
    signal.signal(signal.SIGALRM, before)


def check_refusal(answer: Answer, path: Path) -> None:
    assert answer.code == 2
    assert answer.err.startswith("gradwatch: ")
    assert answer.err.count("gradwatch: ") == 1
    assert str(path) in answer.err
    assert len(answer.err) < 1500
    assert "Traceback" not in answer.err


def runs_in(folder: Path) -> int:
    if not folder.exists():
        return 0
    store = open_store(folder)
    try:
        return len(store.runs())
    finally:
        store.close()


def check_every_command(run: Run, path: Path, data: Path) -> str:
    """Diagnose and import the path; both must agree on whether it is a log. Returns what stands on standard error."""
    text, plain = run("diagnose", path), run("diagnose", path, "--format", "json")
    told = json.loads(plain.out)["runs"]
    stored = run("import", path, "--data", data, "--format", "json")
    imported = json.loads(stored.out)["runs"]
    assert text.code == plain.code
    if text.code == 2:
        for answer in (text, plain, stored):
            check_refusal(answer, path)
        assert told == imported == []
        assert not data.exists()
    else:
        assert text.err == plain.err == stored.err == ""
        assert len(told) == len(imported) == runs_in(data) > 0
        assert stored.code == 0
        assert "\x1b" not in text.out.replace("\x1b[", "") or sys.stdout.isatty()
    return text.err


def zipped_weights() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": [0.5] * 500}))
    return buffer.getvalue()


PACKED = gzip.compress(JSONL.encode())
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty.log": (b"", "empty"),
    "blank.csv": (b" \n\t\r\n  \n", "empty"),
    "picture.png": (b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(5000), "binary"),
    "random.bin": (random.Random(2).randbytes(20_000), "binary"),
    "weights.pt": (zipped_weights(), "binary"),
    "state-cut.json": (STATE.encode()[:20], "no metrics"),
    "gzip-cut.gz": (PACKED[:8], "gzip"),
    "gzip-damaged.gz": (PACKED[:30] + b"\xff" * 200, "gzip"),
    "gzip-empty.gz": (gzip.compress(b""), "gzip"),
    "prose.txt": (PROSE.encode() * 20, "no metrics"),
    "headerless.csv": ("".join(f"{step},{step / 2}\n" for step in STEPS).encode(), "no names"),
    "carriage-returns.csv": (CSV.replace("\n", "\r").encode(), "carriage returns"),
    "zeros.csv": (CSV.replace(",", ",\0\0").encode(), "binary"),
    "no-mark.csv": (CSV.encode("utf-16-le"), "UTF-8"),
    "one-line.log": (b"step 1 loss: 0.5 " * 1_050_000, "longer than"),
    "one-line.jsonl": (b'{"step": 1, "loss": 0.5, "text": "' + b"x" * 17_000_000 + b'"}', "longer than"),
    "one-cell.csv": (b"a,b\n1," + b"2" * 20_000_000 + b"\n", "longer than"),
    "deep.json": (b'{"log_history": ' + b"[" * 200_000, "nested too deeply"),
    "deep-list.json": (b"[" * 200_000, "no metrics"),
    "number.json": (b"5", "no metrics"),
    "header.csv": (b"step,loss\n", "no metrics"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_no_log_is_refused_with_a_reason(name: str, tmp_path: Path, run: Run) -> None:
    content, reason = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert reason in check_every_command(run, path, tmp_path / "data")


def odd_numbers() -> str:
    return "step,loss,a,b,c\n" + "".join(f"{step},1e999,-0,1_000,{'9' * 350}\n" for step in STEPS)


def long_names() -> str:
    rows = [{"step": step, NAME: step, f"{NAME}/grad_norm": "nan" if step > 50 else 1.0} for step in STEPS]
    return "".join(json.dumps(row) + "\n" for row in rows)


def escapes_in_names() -> str:
    rows = [{"step": step, "\x1b[31m\0[/red]loss": "nan", "\ud800": 1.0} for step in STEPS]
    return "".join(json.dumps(row) + "\n" for row in rows)


READ: dict[str, bytes] = {
    "state-cut.json": STATE.encode()[:-50],
    "gzip-cut.jsonl.gz": PACKED[:-20],
    "gzip-and-more.jsonl.gz": PACKED + b"more",
    "jsonl-then-csv.jsonl": (JSONL + CSV).encode(),
    "csv-then-jsonl.csv": (CSV + JSONL).encode(),
    "csv-then-console.csv": (CSV + CONSOLE).encode(),
    "console-then-json.log": (CONSOLE + STATE).encode(),
    "state-then-garbage.json": (STATE + '\nxx garbage {"a": 1}\n').encode(),
    "two-tables.csv": (CSV + OTHER_TABLE).encode(),
    "two-tables-two-marks.csv": (CSV + OTHER_TABLE.replace(",", ";")).encode(),
    "long-names.jsonl": long_names().encode(),
    "long-names.csv": f"step,{NAME}\n".encode() + b"1,nan\n" * 50,
    "escapes.jsonl": escapes_in_names().encode(),
    "markup.csv": b"step,[/red]loss,[bold]grad_norm\n" + b"1,nan,nan\n" * 50,
    "hole.csv": b"\0" * 5000 + CSV.encode(),
    "tail.csv": CSV.encode() + b"\0" * 5000,
    "zeros.jsonl": JSONL.replace("\n", "\0\n\0").encode(),
    "odd-numbers.csv": odd_numbers().encode(),
    "long-integers.jsonl": "".join(f'{{"step": {"9" * 6000}, "loss": 1e999, "a": -0}}\n' for _ in STEPS).encode(),
    "far-steps.jsonl": "".join(f'{{"step": {(-1) ** step * 2**62}, "loss": 1e308}}\n' for step in STEPS).encode(),
    **{f"mark.{name}": text.encode("utf-8-sig") for name, text in TEXTS.items()},
    **{f"wide.{name}": text.encode("utf-16") for name, text in TEXTS.items()},
    **{f"latin.{name}": text.replace("grad", "grâd").encode("latin-1") for name, text in TEXTS.items()},
    **{f"returns.{name}": TEXTS[name].replace("\n", "\r").encode() for name in ("jsonl", "json", "log")},
}


@pytest.mark.parametrize("name", READ)
def test_an_odd_log_is_read(name: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / name
    path.write_bytes(READ[name])
    assert check_every_command(run, path, tmp_path / "data") == ""


def wide_files() -> dict[str, str]:
    names, cells = [f"c{at}" for at in range(WIDE)], ["0.5"] * WIDE
    table = f"step,{','.join(names)}\n" + "".join(f"{step},{','.join(cells)}\n" for step in range(3))
    rows = [{"step": step, **dict.fromkeys(names, 0.5)} for step in range(3)]
    return {"wide.csv": table, "wide.jsonl": "\n".join(map(json.dumps, rows)), "wide.json": json.dumps({"log_history": rows})}


@pytest.mark.parametrize("name", wide_files())
def test_a_hundred_thousand_columns_are_cut_to_what_can_be_judged_and_said(name: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / name
    path.write_text(wide_files()[name])
    begun = time.monotonic()
    answer = run("diagnose", path, "--format", "json")
    assert time.monotonic() - begun < HANGS_AFTER
    (told,) = json.loads(answer.out)["runs"]
    assert len(told["metrics"]) == 50_000
    assert "later ones were left out" in " ".join(told["warnings"])


def test_another_table_below_the_first_is_a_run_of_its_own(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "two.csv"
    path.write_text(CSV + OTHER_TABLE)
    first, second = json.loads(run("diagnose", path, "--format", "json").out)["runs"]
    assert (first["rows"], first["metrics"]) == (len(STEPS), ["grad_norm", "loss"])
    assert (second["rows"], second["metrics"]) == (20, ["acc", "val_loss"])
    assert any("another table begins at line" in warning for warning in first["warnings"])


def test_lines_of_another_format_below_a_table_are_said(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text(CSV + CONSOLE)
    (told,) = json.loads(run("diagnose", path, "--format", "json").out)["runs"]
    assert any(f"{len(STEPS)} lines have no number" in warning for warning in told["warnings"])


def loop(path: Path) -> None:
    path.symlink_to(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "make", [loop, os.mkfifo, listening, zeros, lambda path: None, Path.mkdir, lambda path: path.symlink_to("gone")]
)
def test_what_is_no_file_is_refused(
    make: Callable[[Path], object], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may have a hundred characters
    path = Path("odd.log")
    make(path)
    check_every_command(run, path, tmp_path / "data")
    assert run("diagnose", path).code == 2


@pytest.mark.parametrize("path", ["x" * 300, "a/" * 3000])
def test_an_impossible_path_is_refused(path: str, run: Run) -> None:
    answer = run("diagnose", path)
    assert (answer.code, answer.err.count("gradwatch: ")) == (2, 1)


def test_a_pipe_in_a_folder_is_passed_over(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    os.mkfifo(folder / "pipe.log")
    (folder / "good.csv").write_text(CSV)
    assert run("diagnose", folder) == (0, run("diagnose", folder / "good.csv").out, "")


def test_a_folder_without_a_readable_log_gives_one_message(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.txt").write_text(PROSE)
    assert "none of the 30 files" in check_every_command(run, folder, tmp_path / "data")


@pytest.mark.skipif(sys.platform != "linux", reason="only there a file name may be any bytes")
def test_a_file_name_that_is_no_text_is_stored(tmp_path: Path, run: Run) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text(CSV)
    answer = run("import", path, "--data", tmp_path / "data")
    assert (answer.code, answer.err) == (0, "")
    assert "caf\\udce9" in answer.out


def test_of_several_paths_the_readable_are_imported_and_the_rest_reported(tmp_path: Path, run: Run) -> None:
    good, bad, last = tmp_path / "good.csv", tmp_path / "bad.txt", tmp_path / "last.jsonl"
    good.write_text(CSV)
    bad.write_text(PROSE)
    last.write_text(JSONL)
    answer = run("import", good, bad, tmp_path / "gone", last, "--data", tmp_path / "data", "--format", "json")
    assert answer.code == 2
    assert [one["name"] for one in json.loads(answer.out)["runs"]] == ["good", "last"]
    assert answer.err.count("gradwatch: ") == 2
    assert runs_in(tmp_path / "data") == 2


def test_a_copy_that_was_interrupted_is_completed_by_the_next_import(tmp_path: Path, run: Run) -> None:
    path, data = tmp_path / "good.csv", tmp_path / "data"
    path.write_text(CSV)
    (first,) = json.loads(run("import", path, "--data", tmp_path / "whole", "--format", "json").out)["runs"]
    whole, store = open_store(tmp_path / "whole"), open_store(data)
    store.put_run(whole.runs()[0])
    whole.close()
    store.close()
    assert run("import", path, "--data", data).code == 0
    store = open_store(data)
    assert len(store.curves(first["id"])) > 0
    store.close()


def test_a_store_that_is_a_file_is_refused(tmp_path: Path, run: Run) -> None:
    path, data = tmp_path / "good.csv", tmp_path / "data"
    path.write_text(CSV)
    data.write_text("no folder")
    answer = run("import", path, "--data", data, "--format", "json")
    check_refusal(answer, data)
    assert json.loads(answer.out) == {"runs": []}
    assert data.read_text() == "no folder"
    check_refusal(run("runs", "--data", data), data)


@pytest.mark.parametrize("file", [POINTS_FILE, METADATA_FILE])
@pytest.mark.parametrize("kept", [0, 5000])
def test_a_damaged_store_is_refused(file: str, kept: int, tmp_path: Path, run: Run) -> None:
    path, data = tmp_path / "good.csv", tmp_path / "data"
    path.write_text(CSV)
    assert run("import", path, "--data", data).code == 0
    content = (data / file).read_bytes()
    (data / file).write_bytes(content[:kept] + random.Random(3).randbytes(len(content) - kept))
    other = tmp_path / "other.jsonl"
    other.write_text(JSONL)
    for command in (("import", other), ("runs",), ("findings", "good"), ("export", "good", "--to", tmp_path / "points.csv")):
        answer = run(*command, "--data", data)
        assert answer.code in (0, 2) if kept else answer.code == 2
        if answer.code:
            check_refusal(answer, data)


def test_a_store_that_another_process_holds_is_refused(tmp_path: Path, run: Run) -> None:
    path, data = tmp_path / "good.csv", tmp_path / "data"
    path.write_text(CSV)
    code = (
        f"from pathlib import Path; from gradwatch.store import open_store; s = open_store(Path({str(data)!r})); print(1); input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        answer = run("import", path, "--data", data)
        holder.communicate("\n")
    check_refusal(answer, data)
    assert "another process" in answer.err
    assert runs_in(data) == 0


def test_reading_a_folder_that_is_no_store_leaves_nothing_there(tmp_path: Path, run: Run) -> None:
    check_refusal(run("runs", "--data", tmp_path), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_goes_to_a_terminal_without_block_characters(tmp_path: Path) -> None:
    path = tmp_path / "sick.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{'nan' if step > 50 else 1}\n" for step in STEPS))
    command = [sys.executable, "-m", "gradwatch", "diagnose", str(path)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
