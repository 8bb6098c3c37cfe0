"""No bytes, however damaged, make a reader of structured logs raise, hang or hold unbounded memory."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.summary.writer.record_writer import RecordWriter

from gradwatch.importers.base import Importer
from gradwatch.importers.csv_table import CsvTable
from gradwatch.importers.json_records import JsonDictOfLists, JsonList
from gradwatch.importers.jsonl import Jsonl, VerlJsonl
from gradwatch.importers.monitor_csv import MonitorCsv
from gradwatch.importers.source import Source
from gradwatch.importers.tensorboard_events import TensorboardEvents
from gradwatch.importers.trainer_state import TrainerState


def event_file() -> bytes:
    stream = io.BytesIO()
    writer = RecordWriter(stream)  # type: ignore[no-untyped-call]
    events = [Event(wall_time=1e9, file_version="brain.Event:2")]
    for step in range(4):
        value = Summary.Value(tag="loss", simple_value=0.5)
        events.append(Event(step=step, wall_time=1e9, summary=Summary(value=[value])))
    for event in events:
        writer.write(event.SerializeToString())  # type: ignore[no-untyped-call]
    return stream.getvalue()


ENTRIES = [{"step": step, "loss": 0.5 / (step + 1), "nested": {"a": [1, 2]}, "t": "0.5", "n": None} for step in range(4)]
LINES = "\n".join(json.dumps(entry) for entry in ENTRIES)
SAMPLES: tuple[tuple[Importer, bytes], ...] = (
    (TrainerState(), json.dumps({"best_metric": None, "log_history": ENTRIES, "max_steps": 4}, indent=1).encode()),
    (JsonList(), json.dumps({"config": {"lr": 0.1}, "steps": ENTRIES}).encode()),
    (JsonDictOfLists(), json.dumps({"loss": [0.5, 0.4, None, 0.2], "epoch": [0, 1, 2, 3], "lr": 1}).encode()),
    (Jsonl(), LINES.encode()),
    (VerlJsonl(), "\n".join(json.dumps({"step": 1, "data": entry}) for entry in ENTRIES).encode()),
    (CsvTable(), b'"Step","a - loss","a - loss__MIN"\n"1","0.5","0.4"\n"2","nan",""\n"3","1,5","x\ny"\n'),
    (CsvTable(), b"step;loss;kl\r\n1;0.5;\r\n2;tensor(0.4);1_0\r\n3;;\r\n"),
    (MonitorCsv(), b'#{"t_start": 1.5, "env_id": "E"}\nr,l,t\n1,2,3\n4,5,6\n'),
    (TensorboardEvents(), event_file()),
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
SMALL_PIECES = (
    b"\0",
    b"NaN",
    b"-Infinity",
    b'"',
    b"\\",
    b"[",
    b"{",
    b"}",
    b"]",
    b",",
    b"\n",
    b"\r",
    b"\xff\xfe",
    b"\\ud800",
)
LARGE_PIECES = (b"\0" * 64, b"9" * 5000, b"1e999", b'{"a":' * 3000, b"[" * 5000, b"\x1f\x8b", b"#{", b"=" * 300)
PIECES = st.sampled_from((*SMALL_PIECES, *LARGE_PIECES))


@st.composite
def damaged(draw: st.DrawFn, sample: bytes) -> bytes:
    content = sample
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 60)))
        kind = draw(st.sampled_from(["cut", "flip", "double", "insert", "remove"]))
        if kind == "cut":
            content = content[:end]
        elif kind == "flip" and start < len(content):
            content = content[:start] + bytes([content[start] ^ (1 << draw(st.integers(0, 7)))]) + content[start + 1 :]
        elif kind == "double":
            content = content[:end] + content[start:]
        elif kind == "insert":
            content = content[:start] + draw(PIECES) + content[start:]
        else:
            content = content[:start] + content[end:]
    return content


def read_all(importer: Importer, content: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        source = Source(path)
        importer.recognises(source.head())
        count = 0
        for row in importer.rows(source):
            count += 1
            assert all(type(value) is float for value in row.values.values())
            assert type(row.wall_time) is float
            "".join(row.values).encode()
        assert all(isinstance(warning, str) for warning in source.all_warnings())
        return count


@pytest.mark.parametrize(("importer", "sample"), SAMPLES, ids=lambda part: getattr(part, "format", ""))
def test_the_samples_themselves_are_recognised_and_read(importer: Importer, sample: bytes) -> None:
    assert importer.recognises(sample)
    assert read_all(importer, sample) >= 2


@pytest.mark.parametrize("index", range(len(SAMPLES)))
def test_damage_never_raises(index: int) -> None:
    importer, sample = SAMPLES[index]

    @QUICK
    @given(damaged(sample), st.booleans())
    def check(content: bytes, packed: bool) -> None:
        content = gzip.compress(content)[: len(content)] if packed else content
        read_all(importer, content)

    check()


@QUICK
@given(st.binary(max_size=600))
def test_no_bytes_at_all_make_any_reader_raise(content: bytes) -> None:
    for importer, _ in SAMPLES:
        read_all(importer, content)
        assert importer.recognises(content) in (True, False)


@pytest.mark.parametrize(
    "content",
    [
        b'{"log_history": [' + b"[" * 3_000_000,
        b'{"log_history": [{"a": "' + b"x" * 20_000_000,
        b'[{"a":1},{"b":"},' + b'{"a":1},{"b":"},' * 200_000,
        b"a,b\n" + b'1,"x,2\n' * 50_000,
        b"1" * 20_000_000,
        b'{"' + b'a":{"' * 100_000,
    ],
    ids=["nesting", "endless string", "crossed quotes", "stray quotes", "digits", "nested keys"],
)
def test_hostile_files_need_bounded_memory(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    for importer, _ in SAMPLES:
        tracemalloc.start()
        source = Source(path)
        importer.recognises(source.head())
        for _ in importer.rows(source):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 150 * 2**20
