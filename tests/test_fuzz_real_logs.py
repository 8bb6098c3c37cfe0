"""Real logs of every format, damaged in every way: a report that is valid JSON or a refusal that names the file, soon."""

from __future__ import annotations

import csv
import io
import json
import struct
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as masked_crc

from gradwatch.cli.report import as_json, diagnose
from gradwatch.errors import UnreadableLogError
from gradwatch.importers.reader import LogFile

FILES = Path(__file__).resolve().parents[1].parent / "shared" / "corpus" / "files"
LARGEST, KEPT = 400_000, 64 * 1024
ALLOWED_SECONDS = 10
EXAMPLES = 20
STEPS = range(1, 60)
ROWS = [{"step": step, "loss": 1 / step, "grad_norm": 0.5, "reward": step / 60} for step in STEPS]


def table() -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def event_file() -> bytes:
    parts = []
    for row in ROWS:
        value = Summary.Value(tag="train/loss", simple_value=row["loss"])
        content = Event(step=int(row["step"]), wall_time=1e9, summary=Summary(value=[value])).SerializeToString()
        length = struct.pack("<Q", len(content))
        parts += [length, struct.pack("<I", masked_crc(length)), content, struct.pack("<I", masked_crc(content))]
    return b"".join(parts)


def made() -> dict[str, bytes]:
    """A small sample of every format."""
    lines = [json.dumps(row) for row in ROWS]
    rule = "-" * 30
    boxes = [
        f"{rule}\n| rollout/ | |\n|    ep_rew_mean | {row['reward']:.3} |\n| time/ | |\n| total_timesteps | {row['step']} |\n{rule}"
        for row in ROWS
    ]
    return {
        "csv": table(),
        "generic_console": "".join(f"step {row['step']} loss: {row['loss']} reward: {row['reward']}\n" for row in ROWS).encode(),
        "hf_console_dict": "".join(f"{{'loss': {row['loss']}, 'epoch': {row['step'] / 60:.2f}}}\n" for row in ROWS).encode(),
        "hf_trainer_state": json.dumps({"best_metric": None, "log_history": ROWS, "max_steps": 60}, indent=2).encode(),
        "json_dict_of_lists": json.dumps({key: [row[key] for row in ROWS] for key in ROWS[0]}).encode(),
        "json_list": json.dumps(ROWS).encode(),
        "jsonl": "\n".join(lines).encode(),
        "monitor_csv": b'#{"t_start": 1.5, "env_id": "E"}\nr,l,t\n' + b"".join(b"%d,2,3\n" % step for step in STEPS),
        "sb3_table": "\n".join(boxes).encode(),
        "tfevents": event_file(),
        "verl_console": "".join(f"step:{row['step']} - actor/pg_loss:{row['loss']} - reward:1.0\n" for row in ROWS).encode(),
        "verl_jsonl": "\n".join(json.dumps({"step": row["step"], "data": row}) for row in ROWS).encode(),
    }


def format_of(path: Path) -> str:
    log = LogFile(path)
    for _ in log.blocks():
        pass
    return log.format


def beginning(path: Path) -> bytes:
    content = path.read_bytes()
    return content if len(content) <= KEPT else content[: content.rfind(b"\n", 0, KEPT) + 1] or content[:KEPT]


def samples() -> dict[str, bytes]:
    """One real file of every format that lies beside the checkout, the smallest; samples of our own for the other formats."""
    found = made()
    for path in sorted(FILES.glob("*"), key=lambda file: -file.stat().st_size):
        if path.stat().st_size < LARGEST:
            found[format_of(path)] = beginning(path)
    return found


SAMPLES = samples()
PIECES = (
    b"\0",
    b"\0" * 300,
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"null",
    b"\n",
    b"\r",
    b"\r\n",
    b'"',
    b"'",
    b",",
    b"{",
    b"}",
    b"[" * 2000,
)


@st.composite
def damaged(draw: st.DrawFn, sample: bytes) -> bytes:
    content = sample
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.one_of(st.integers(0, 40), st.integers(0, 5000))))
        before, span, after = content[:start], content[start:end], content[end:]
        kind = draw(st.sampled_from(["cut", "flip", "delete", "double", "swap", "insert", "bytes", "join"]))
        if kind == "cut":
            content = before
        elif kind == "flip":
            content = before + bytes(byte ^ (1 << draw(st.integers(0, 7))) for byte in span[:8]) + span[8:] + after
        elif kind == "delete":
            content = before + after
        elif kind == "double":
            content = before + span + span + after
        elif kind == "swap":
            half = len(after) // 2
            content = before + after[:half] + span + after[half:]
        elif kind == "insert":
            content = before + draw(st.sampled_from(PIECES)) + span + after
        elif kind == "bytes":
            content = before + draw(st.binary(max_size=60)) + after
        else:
            content += SAMPLES[draw(st.sampled_from(sorted(SAMPLES)))]
    return content


def check(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(content)
        begun = time.monotonic()
        try:
            told = [json.dumps(as_json(report), allow_nan=False) for report in diagnose(path)]
        except UnreadableLogError as error:
            told = [str(error)] if str(path) in str(error) else []
        assert told
        assert time.monotonic() - begun < ALLOWED_SECONDS


QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_read_as_what_they_are(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(SAMPLES[name])
    assert {one.run.format for one in diagnose(path)} == {name}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_log_is_reported_on_or_refused(name: str) -> None:
    QUICK(given(damaged(SAMPLES[name]))(check))()


@QUICK
@given(st.binary(max_size=2000))
def test_random_bytes_are_reported_on_or_refused(content: bytes) -> None:
    check(content)
