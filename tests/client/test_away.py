"""The collector is away, busy, broken, or is no collector at all: training goes on, nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import msgspec
import pytest
from client.scripted import Answering, Server, free_port, serving, wait_until

import gradwatch
from gradwatch.client.http import Http
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import Batch


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again soon."""
    monkeypatch.setattr("gradwatch.client.backoff.FIRST", 0.05)
    monkeypatch.setattr("gradwatch.client.backoff.MOST", 0.1)
    monkeypatch.setattr("gradwatch.client.sender.REFUSED_WAIT", 0.1)
    monkeypatch.setattr("gradwatch.client.worker.AWAY_SECONDS", 0.05)


def spools(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "spool").glob("*.spool"))


def test_what_is_logged_while_the_collector_is_away_comes_later_in_order(tmp_path: Path) -> None:
    port = free_port()
    with gradwatch.init(url=f"http://127.0.0.1:{port}") as run:
        for step in range(100):
            run.log({"loss": float(step)}, step=step)
        wait_until(lambda: spools(tmp_path))
        for step in range(100, 200):
            run.log({"loss": float(step)}, step=step)
        with serving(port) as server:
            wait_until(lambda: len(server.values("loss")) == 200)
            run.log({"loss": 200.0}, step=200)
            assert run.flush()
            assert server.values("loss") == [float(step) for step in range(201)]
            assert run.dropped == 0
            wait_until(lambda: not spools(tmp_path))
            run.finish()


def test_a_collector_that_comes_and_goes_loses_and_doubles_nothing() -> None:
    port, step = free_port(), 0
    with gradwatch.init(url=f"http://127.0.0.1:{port}") as run:
        batches: dict[str, object] = {}
        for _ in range(4):
            with serving(port) as server:
                server.batches.update(batches)  # type: ignore[arg-type]
                before = len(batches)
                for _ in range(50):
                    run.log({"loss": float(step)}, step=step)
                    step += 1
                wait_until(lambda server=server, before=before: len(server.batches) > before)  # type: ignore[misc]
                batches = dict(server.batches)
            for _ in range(50):
                run.log({"loss": float(step)}, step=step)
                step += 1
        with serving(port) as server:
            server.batches.update(batches)  # type: ignore[arg-type]
            assert run.flush()
            values = server.values("loss")
            run.finish()
    assert values == [float(number) for number in range(step)]


MISBEHAVIOURS: dict[str, Callable[[Answering], bool]] = {
    "garbage": lambda request: request.answer(b"<html>hello</html>", kind="text/html"),
    "nothing": lambda request: request.answer(b""),
    "other msgpack": lambda request: request.answer(b"\x93\x01\x02\x03"),
    "500": lambda request: request.answer(b"oops", 500),
    "503 with a problem": lambda request: request.problem(503),
    "redirect": lambda request: request.answer(b"", 302, headers={"Location": "http://127.0.0.1:1/"}),
    "404 of a stranger": lambda request: request.answer(b"not here", 404),
    "400 of a stranger": lambda request: request.answer(b"bad", 400),
    "hangs up": lambda request: request.hang_up(),
    "bad gzip": lambda request: request.answer(b"nonsense", headers={"Content-Encoding": "gzip"}),
    "401": lambda request: request.problem(401, "a key is needed"),
    "run refused": lambda request: request.path.endswith("/runs") and request.problem(403, "not yours"),
}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_no_answer_of_a_collector_reaches_training_or_loses_data(
    name: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.misbehave = MISBEHAVIOURS[name]
    with gradwatch.init(url=server.url, quiet=True) as run:
        run.log({"loss": 1.0}, step=1)
        wait_until(lambda: server.requests >= 2)
        run.log({"loss": 2.0}, step=2)
        server.misbehave = lambda request: False
        assert run.flush()
    assert server.values("loss") == [1.0, 2.0]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_answer_lost_on_its_way_doubles_nothing(server: Server) -> None:
    lost = 0

    def lose_the_ack(request: Answering) -> bool:
        nonlocal lost
        if not request.path.endswith("/batches") or lost > 2:
            return False
        lost += 1
        answer, request.answer = request.answer, lambda *_, **__: True  # type: ignore[method-assign]
        request._take(msgspec.msgpack.decode(request.body, type=Batch))
        request.answer = answer  # type: ignore[method-assign]
        return request.hang_up()

    server.misbehave = lose_the_ack
    with gradwatch.init(url=server.url) as run:
        for step in range(10):
            run.log({"loss": float(step)}, step=step)
        assert run.flush()
    assert server.values("loss") == [float(step) for step in range(10)]
    assert lost == 3


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured(server: Server, as_date: bool) -> None:
    times: list[float] = []

    def busy_once(request: Answering) -> bool:
        times.append(time.time())
        after = formatdate(time.time() + 2, usegmt=True) if as_date else "1"
        return len(times) == 1 and request.problem(429, "busy", {"Retry-After": after})

    server.misbehave = busy_once
    with gradwatch.init(url=server.url) as run:
        run.log({"loss": 1.0})
        assert run.flush()
    assert times[1] - times[0] >= 0.95
    assert server.values("loss") == [1.0]


def test_many_busy_clients_all_arrive(server: Server) -> None:
    turn = iter(range(10**6))
    server.misbehave = lambda request: next(turn) % 3 != 0 and request.problem(429, "busy", {"Retry-After": "0.1"})
    runs = [gradwatch.init(url=server.url, id=f"job{number}", quiet=True) for number in range(8)]
    for run in runs:
        run.log({"loss": 1.0})
    assert all(run.flush() for run in runs)
    assert {one.id for one in server.opened} == {run.id for run in runs}
    assert len(server.values("loss")) == 8


def test_a_run_that_the_collector_forgot_is_opened_again(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"loss": 1.0})
        assert run.flush()
        forgotten = True

        def forget(request: Answering) -> bool:
            nonlocal forgotten
            if request.path.endswith("/runs"):
                forgotten = False
            return forgotten and request.problem(404, "no such run")

        server.misbehave = forget
        run.log({"loss": 2.0})
        assert run.flush()
    assert server.values("loss") == [1.0, 2.0]
    assert len(server.opened) == 2


def test_a_refused_batch_is_set_aside_and_the_rest_goes_on(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.misbehave = lambda request: b"poison" in request.body and request.problem(400, "not this one")
    with gradwatch.init(url=server.url) as run:
        run.log({"poison": 1.0})
        assert run.flush()
        run.log({"loss": 2.0})
    assert server.values("loss") == [2.0]
    (aside,) = (tmp_path / "spool").glob("*.refused")
    assert b"poison" in aside.read_bytes()
    assert sum("not this one" in record.message for record in caplog.records) == 1


def test_a_hanging_collector_delays_neither_log_nor_the_end(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = threading.Event()
    server.misbehave = lambda request: not release.wait(30) and False
    run = gradwatch.init(url=server.url, flush_seconds=0.3)
    begun = time.monotonic()
    for step in range(1000):
        run.log({"loss": float(step)}, step=step)
    assert time.monotonic() - begun < 8
    assert run.flush(0.1) is False
    begun = time.monotonic()
    run.finish()
    assert time.monotonic() - begun < 8
    release.set()
    assert spools(tmp_path)
    assert "gradwatch sync" in capsys.readouterr().err


def test_the_end_does_not_wait_for_a_collector_that_is_known_to_be_away(tmp_path: Path) -> None:
    run = gradwatch.init(url=f"http://127.0.0.1:{free_port()}", flush_seconds=10)
    run.log({"loss": 1.0})
    wait_until(lambda: spools(tmp_path))
    begun = time.monotonic()
    run.finish()
    assert time.monotonic() - begun < 8


def test_a_disk_that_fails_leaves_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    port = free_port()
    with gradwatch.init(url=f"http://127.0.0.1:{port}", dir=blocked / "spool") as run:
        run.log({"loss": 1.0})
        wait_until(lambda: any("spool cannot be written" in record.message for record in caplog.records))
        run.log({"loss": 2.0})
        with serving(port) as server:
            assert run.flush()
            assert server.values("loss") == [1.0, 2.0]
            run.finish()


def test_a_full_spool_drops_the_oldest_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.client.spool.LEAST_SEGMENT", 20_000)
    monkeypatch.setattr("gradwatch.client.worker.MEGABYTE", 60_000)
    port = free_port()
    with gradwatch.init(url=f"http://127.0.0.1:{port}", spool_mb=1) as run:
        for step in range(5000):
            run.log({"loss": float(step)}, step=step)
            if step % 200 == 0:
                run.flush(0.02)
        assert run.dropped > 0
        with serving(port) as server:
            assert run.flush()
            values = server.values("loss")
            run.finish()
            told = server.events("lost_data")
    assert values == sorted(values)
    assert values[-1] == 4999.0
    assert len(values) == 5000 - run.dropped
    assert "the spool was full" in told[0]


def test_a_strangers_refusal_is_no_refusal(server: Server) -> None:
    with Http(server.url) as http:
        server.misbehave = lambda request: request.answer(b"<html>", 403)
        with pytest.raises(UnavailableError, match="not from a gradwatch collector"):
            http.request("POST", "/x", b"")
        server.misbehave = lambda request: request.answer(b"<html>", 413)
        with pytest.raises(RefusedError):
            http.request("POST", "/x", b"")
        server.misbehave = lambda request: request.problem(409, "it exists")
        with pytest.raises(RefusedError, match="it exists"):
            http.request("POST", "/x", b"")
