"""What the reader of TensorBoard event files promises, against files that TensorBoard's own writer wrote."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.compat.proto.tensor_pb2 import TensorProto  # type: ignore[attr-defined]
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as masked_crc
from tensorboard.summary.writer.record_writer import RecordWriter

from gradwatch.importers.base import Row
from gradwatch.importers.names import run_name
from gradwatch.importers.source import Source
from gradwatch.importers.tensorboard_events import TensorboardEvents


def scalars(tag: str, *points: tuple[int, float]) -> list[Any]:
    return [
        Event(wall_time=100.0 + step, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))
        for step, value in points
    ]


def framed(*events: Any) -> bytes:
    stream = io.BytesIO()
    writer = RecordWriter(stream)  # type: ignore[no-untyped-call]
    for event in (Event(wall_time=1.0, file_version="brain.Event:2"), *events):
        writer.write(event.SerializeToString())  # type: ignore[no-untyped-call]
    return stream.getvalue()


def read(tmp_path: Path, content: bytes) -> tuple[list[Row], list[str]]:
    path = tmp_path / "log"
    path.write_bytes(content)
    source = Source(path)
    assert TensorboardEvents().recognises(source.head())
    return list(TensorboardEvents().rows(source)), source.all_warnings()


def test_each_scalar_is_a_row_on_the_axis_of_its_tag(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, framed(*scalars("loss", (3, 0.5), (4, float("inf"))), *scalars("return", (1, 7.0))))
    assert [(row.axis, row.step, row.wall_time, row.values) for row in rows] == [
        ("loss", 3, 103.0, {"loss": 0.5}),
        ("loss", 4, 104.0, {"loss": float("inf")}),
        ("return", 1, 101.0, {"return": 7.0}),
    ]
    assert warnings == []


NUMBERS = [
    (TensorProto(dtype=1, float_val=[0.5]), 0.5),
    (TensorProto(dtype=2, double_val=[0.1]), 0.1),
    (TensorProto(dtype=3, int_val=[-4]), -4.0),
    (TensorProto(dtype=9, int64_val=[2**40]), 2.0**40),
    (TensorProto(dtype=10, bool_val=[True]), 1.0),
    (TensorProto(dtype=19, half_val=[0x3800]), 0.5),
    (TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.5)), 0.5),
    (TensorProto(dtype=2, double_val=[float("-inf")]), float("-inf")),
]


@pytest.mark.parametrize(("tensor", "value"), NUMBERS)
def test_a_tensor_of_one_number_is_read_in_every_type(tmp_path: Path, tensor: Any, value: float) -> None:
    rows, _ = read(tmp_path, framed(Event(step=1, summary=Summary(value=[Summary.Value(tag="loss", tensor=tensor)]))))
    assert [row.values for row in rows] == [{"loss": value}]


def test_text_is_passed_over(tmp_path: Path) -> None:
    text = TensorProto(dtype=7, string_val=[b"text"])
    rows, warnings = read(tmp_path, framed(Event(summary=Summary(value=[Summary.Value(tag="notes", tensor=text)]))))
    assert (rows, warnings) == ([], [])


def test_tensors_of_other_shapes_and_of_other_plugins_are_passed_over(tmp_path: Path) -> None:
    vector = TensorProto(dtype=1, float_val=[1.0, 2.0])
    vector.tensor_shape.dim.add(size=2)
    foreign = Summary.Value(tag="_hparams_/experiment", tensor=TensorProto(dtype=1))
    foreign.metadata.plugin_data.plugin_name = "hparams"
    own = Summary.Value(tag="loss", tensor=TensorProto(dtype=1, float_val=[0.5]))
    own.metadata.plugin_data.plugin_name = "scalars"
    event = Event(step=1, summary=Summary(value=[Summary.Value(tag="v", tensor=vector), foreign, own]))
    rows, _ = read(tmp_path, framed(event))
    assert [row.axis for row in rows] == ["loss"]


def test_a_cut_file_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    rows, warnings = read(tmp_path, framed(*scalars("loss", (1, 0.5), (2, 0.4)))[:-3])
    assert [row.step for row in rows] == [1]
    assert "is cut or damaged at byte" in warnings[0]


def test_a_flipped_bit_ends_the_reading_and_that_is_said(tmp_path: Path) -> None:
    content = bytearray(framed(*scalars("loss", (1, 0.5), (2, 0.4), (3, 0.3))))
    content[content.rindex(b"loss")] ^= 1
    rows, warnings = read(tmp_path, bytes(content))
    assert [row.step for row in rows] == [1, 2]
    assert "is cut or damaged at byte" in warnings[0]


@pytest.mark.parametrize("length", [2**62, 2**40, 2**26])
def test_a_record_that_claims_to_be_huge_is_not_allocated(tmp_path: Path, length: int) -> None:
    header = struct.pack("<Q", length)
    rows, warnings = read(tmp_path, framed(*scalars("a", (1, 0.5))) + header + struct.pack("<I", masked_crc(header)) + b"x")
    assert [row.step for row in rows] == [1]
    assert len(warnings) == 1


def test_a_packed_file_is_read_and_a_damaged_one_up_to_its_damage(tmp_path: Path) -> None:
    packed = gzip.compress(framed(*scalars("loss", *((step, 0.5) for step in range(500)))))
    whole, _ = read(tmp_path, packed)
    assert len(whole) == 500
    part, warnings = read(tmp_path, packed[: len(packed) // 2])
    assert 0 < len(part) < 500
    assert "gzip" in warnings[0]


def test_other_files_are_not_recognised() -> None:
    assert not any(TensorboardEvents().recognises(head) for head in (b"", b"step,loss\n1,2\n", b"\0" * 100, b"\xff" * 100))


def test_a_run_is_called_after_the_folder_of_its_event_files() -> None:
    assert run_name(Path("runs/first/events.out.tfevents.1796043297.host.9937.0")) == "first"
