"""The spool's files: an order that holds, damage that is seen and passed, limits that hold."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.client.frames import BATCH, HEADER, Damage, Frame, Header, encode_frame, read_frames
from gradwatch.client.spool import Spool
from gradwatch.schema import Event
from gradwatch.wire import Batch, OpenRun

HEADING = Header(OpenRun(id="r", process="h-1-2-abcd"), "h", 1, "2")


def batch(number: int, size: int = 10) -> Batch:
    return Batch(id=f"p-{number}", events=[Event(kind="k", message="x" * size)])


def taken(spool: Spool) -> list[str]:
    ids = []
    while (one := spool.first()) is not None:
        ids.append(one.id)
        spool.advance()
    return ids


def frames(count: int) -> bytes:
    head = encode_frame(HEADER, msgspec.msgpack.encode(HEADING))
    return head + b"".join(encode_frame(BATCH, msgspec.msgpack.encode(batch(number))) for number in range(count))


def bodies(data: bytes) -> list[bytes]:
    return [one.body for one in read_frames(data) if isinstance(one, Frame)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 700))
def test_a_torn_end_costs_the_last_frame_alone(length: int) -> None:
    data = frames(5)
    whole, torn = bodies(data), data[:length]
    found = bodies(torn)
    assert found == whole[: len(found)]
    ends = [one.end for one in read_frames(data) if isinstance(one, Frame)]
    assert len(found) == sum(end <= length for end in ends)
    damage = [one for one in read_frames(torn) if isinstance(one, Damage)]
    assert all(one.torn for one in damage)
    assert len(damage) == (0 if length in (0, *ends) or length > len(data) else 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_cost_the_frames_that_they_are_in(flips: list[tuple[int, int]]) -> None:
    data = frames(8)
    ends = [0, *(one.end for one in read_frames(data) if isinstance(one, Frame))]
    spoiled, hit = bytearray(data), set()
    for at, bit in set(flips):
        spoiled[at % len(data)] ^= 1 << bit
    for number, (start, end) in enumerate(pairwise(ends)):
        if spoiled[start:end] != data[start:end]:
            hit.add(number)
    whole = bodies(data)
    assert bodies(bytes(spoiled)) == [body for number, body in enumerate(whole) if number not in hit]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_to_their_end(data: bytes) -> None:
    assert sum(one.end for one in list(read_frames(data))[-1:]) == len(data)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 5), max_size=20))
def test_batches_come_back_in_order_however_reads_and_writes_mix(moves: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool, made, read = Spool(Path(folder), HEADING, 10**9), 0, []
        for move in moves:
            for _ in range(move):
                assert spool.append(batch(made)) == []
                made += 1
            for _ in range(-move):
                if (one := spool.first()) is not None:
                    read.append(one.id)
                    spool.advance()
        read += taken(spool)
        assert read == [f"p-{number}" for number in range(made)]
        assert len(spool) == 0
        assert not list(Path(folder).iterdir())
        spool.close()


def test_the_oldest_go_when_the_limit_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.client.spool.LEAST_SEGMENT", 1000)
    spool = Spool(tmp_path, HEADING, 5000)
    lost = [one.id for number in range(200) for one in spool.append(batch(number, 50))]
    kept = taken(spool)
    assert lost + kept == [f"p-{number}" for number in range(200)]
    assert lost
    assert kept
    spool.close()


def test_a_file_that_somebody_removed_is_replaced(tmp_path: Path) -> None:
    spool = Spool(tmp_path, HEADING, 10**9)
    spool.append(batch(0))
    for path in tmp_path.iterdir():
        path.unlink()
    spool.append(batch(1))
    assert taken(spool) == ["p-1"]
    spool.close()


def test_a_damaged_file_is_left_for_sync(tmp_path: Path) -> None:
    spool = Spool(tmp_path, HEADING, 10**9)
    for number in range(3):
        spool.append(batch(number))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[[one.end for one in read_frames(bytes(data))][1] + 20] ^= 1
    path.write_bytes(data)
    assert taken(spool) == ["p-0"]
    assert spool.damaged == [path]
    assert path.exists()
    spool.close()


def test_files_are_private(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "folder", HEADING, 10**9)
    spool.append(batch(0))
    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    spool.close()


def test_where_no_file_can_be_begun_none_is_left_open_and_the_next_try_is_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path, HEADING, 10_000_000)
    (tmp_path / "r@h-1-2-abcd@0000.spool").symlink_to("/dev/full")
    before = len(list(Path("/dev/fd").iterdir()))
    for number in range(5):
        with pytest.raises(OSError, match="No space left"):
            spool.append(batch(number))
    assert len(list(Path("/dev/fd").iterdir())) == before
    (tmp_path / "r@h-1-2-abcd@0000.spool").unlink()
    (tmp_path / "r@h-1-2-abcd@0000.spool").write_bytes(frames(0)[:10])
    spool.append(batch(5))
    spool.append(batch(6))
    assert taken(spool) == ["p-5", "p-6"]
