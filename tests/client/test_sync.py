"""`sync` sends what dead processes left behind: all of it, once, and nothing of a living one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from client.scripted import Server, free_port

import gradwatch
from gradwatch.client.frames import Header, encode_frame
from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.identity import Born, host, own
from gradwatch.client.spool import Spool
from gradwatch.client.sync import SyncResult, sync
from gradwatch.errors import UnavailableError
from gradwatch.schema import Block
from gradwatch.wire import Batch, OpenRun, pack


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def header(run: str = "r", born: Born | None = None) -> Header:
    born = born or Born(host(), dead_process(), "1")
    return Header(OpenRun(id=run, process=f"{born}-abcd", name="old"), *born)


def fill(folder: Path, heading: Header, steps: range) -> Path:
    spool = Spool(folder, heading, 10**9)
    for step in steps:
        block = Block()
        block.add(gradwatch.schema.Series("loss", "loss"), step, float(step))
        spool.append(Batch(id=f"{heading.request.process}-{step}", process=heading.request.process, columns=pack(block)))
    spool.close()
    return folder / f"{heading.request.id}@{heading.request.process}@0000.spool"


def run_sync(folder: Path, server: Server, keep: bool = False) -> SyncResult:
    return sync(folder, lambda: HttpTransport(server.url), progress=lambda line: None, keep=keep)


def test_everything_arrives_in_order_and_the_files_go(server: Server, tmp_path: Path) -> None:
    fill(tmp_path, header("one"), range(5))
    fill(tmp_path, header("two"), range(3))
    result = run_sync(tmp_path, server)
    assert {key: (one.batches, one.points, one.damaged) for key, one in result.runs.items()} == {"one": (5, 5, 0), "two": (3, 3, 0)}
    assert server.values("loss") == [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0]
    assert [one.name for one in server.opened] == ["old", "old"]
    assert not list(tmp_path.iterdir())


def test_a_second_sync_adds_nothing(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(), range(5))
    assert run_sync(tmp_path, server, keep=True).runs["r"].points == 5
    assert path.exists()
    again = run_sync(tmp_path, server).runs["r"]
    assert (again.points, again.duplicates) == (0, 5)
    assert server.values("loss") == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_sync_that_was_cut_short_goes_on(server: Server, tmp_path: Path) -> None:
    fill(tmp_path, header(), range(5))
    server.misbehave = lambda request: len(server.batches) == 2 and request.problem(503)
    with pytest.raises(UnavailableError):
        run_sync(tmp_path, server)
    server.misbehave = lambda request: False
    run_sync(tmp_path, server)
    assert server.values("loss") == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_living_process_is_left_alone(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(born=own()), range(5))
    assert run_sync(tmp_path, server).alive == [path]
    assert path.exists()
    assert server.values("loss") == []


def test_a_later_process_with_the_same_number_is_another_one(server: Server, tmp_path: Path) -> None:
    fill(tmp_path, header(born=own()._replace(started="1")), range(5))
    assert run_sync(tmp_path, server).runs["r"].points == 5


def test_another_hosts_process_counts_as_alive_while_it_writes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path, header(born=Born("elsewhere", 1, "1")), range(5))
    assert run_sync(tmp_path, server).alive == [path]
    monkeypatch.setattr("gradwatch.client.sync.QUIET_SECONDS", -1.0)
    assert run_sync(tmp_path, server).runs["r"].points == 5


def test_damage_is_counted_and_the_rest_arrives(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(), range(5))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data) + b"\x93GW1 torn")
    tally = run_sync(tmp_path, server).runs["r"]
    assert (tally.points, tally.damaged) == (4, 2)


def test_a_damaged_header_is_read_from_the_file_name(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header("my-run"), range(5))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert run_sync(tmp_path, server).runs["my-run"].points == 5


def test_a_stray_file_is_left_and_named(server: Server, tmp_path: Path) -> None:
    stray = tmp_path / "notes.spool"
    stray.write_text("not ours")
    fill(tmp_path, header(), range(2))
    result = run_sync(tmp_path, server)
    assert list(result.left) == [stray]
    assert result.runs["r"].points == 2


def test_a_frame_of_another_kind_is_damage_not_the_end(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(), range(2))
    path.write_bytes(path.read_bytes() + encode_frame(1, b"\xc1") + encode_frame(1, msgspec.msgpack.encode(Batch(id="p-9"))))
    tally = run_sync(tmp_path, server).runs["r"]
    assert (tally.batches, tally.damaged) == (3, 1)


def test_a_refused_batch_is_set_aside(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(), range(3))
    server.misbehave = lambda request: b"abcd-1" in request.body and request.problem(400, "no")
    tally = run_sync(tmp_path, server).runs["r"]
    assert (tally.points, tally.refused) == (2, 1)
    assert not path.exists()
    assert path.with_name(path.name + ".refused").exists()


def test_a_key_that_is_refused_leaves_everything(server: Server, tmp_path: Path) -> None:
    path = fill(tmp_path, header(), range(3))
    server.misbehave = lambda request: request.problem(401, "a key is needed")
    assert "a key is needed" in run_sync(tmp_path, server).left[path]
    assert path.exists()


def test_a_busy_collector_is_waited_for(server: Server, tmp_path: Path) -> None:
    fill(tmp_path, header(), range(3))
    turn = iter(range(100))
    server.misbehave = lambda request: next(turn) % 2 == 0 and request.problem(429, "busy", {"Retry-After": "0.01"})
    assert run_sync(tmp_path, server).runs["r"].points == 3


def test_an_offline_run_arrives_whole(server: Server, tmp_path: Path) -> None:
    code = "import gradwatch; gradwatch.init(mode='offline', id='r', name='n', quiet=True).log({'loss': [1.0, 2.0]}, step=3)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"GRADWATCH_DIR": str(tmp_path), "PATH": ""})
    tally = run_sync(tmp_path, server).runs["r"]
    assert tally.points == 6
    assert [batch.status for batch in server.batches.values()][-1] == "finished"
    assert server.opened[0].name == "n"


def test_no_collector_is_said(tmp_path: Path) -> None:
    fill(tmp_path, header(), range(3))
    with pytest.raises(UnavailableError, match="no collector answers"):
        sync(tmp_path, lambda: HttpTransport(f"http://127.0.0.1:{free_port()}"))


def test_an_empty_folder_needs_no_collector(tmp_path: Path) -> None:
    assert sync(tmp_path, lambda: HttpTransport("http://127.0.0.1:1")) == SyncResult()
