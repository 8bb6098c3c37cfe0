"""What `init` checks at once, what it leaves for later, and the modes."""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from client.scripted import Server, free_port

import gradwatch
from gradwatch.errors import RefusedError, SettingsError, UnavailableError
from gradwatch.store import open_store


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "onlin"}, "mode='onlin'"),
        ({"url": "127.0.0.1:8420"}, "url='127.0.0.1:8420'"),
        ({"resume": "yes"}, "resume='yes'"),
        ({"id": "a/b"}, "id='a/b'"),
        ({"id": ".."}, "id='..'"),
        ({"queue_points": 0}, "queue_points=0"),
        ({"no_such": 1}, "no setting 'no_such'"),
        ({"config": 3}, "config: must be a mapping"),
        ({"roles": "solver"}, "roles: must be a mapping"),
        ({"mode": "offline", "resume": "must"}, "only a collector knows"),
        ({"mode": "offline", "dir": "/proc/none"}, "cannot be written"),
    ],
)
def test_a_wrong_setting_stops_before_the_first_step(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        gradwatch.init(**given)
    assert said in str(caught.value)


def test_must_and_never_ask_the_collector(server: Server) -> None:
    server.misbehave = lambda request: request.problem(404, "no such run")
    with pytest.raises(RefusedError, match="no such run"):
        gradwatch.init(url=server.url, id="r", resume="must")
    server.misbehave = lambda request: request.problem(409, "it exists")
    with pytest.raises(RefusedError, match="it exists"):
        gradwatch.init(url=server.url, id="r", resume="never")
    with pytest.raises(UnavailableError):
        gradwatch.init(url=f"http://127.0.0.1:{free_port()}", id="r", resume="must")
    server.misbehave = lambda request: False
    with gradwatch.init(url=server.url, id="r", resume="must") as run:
        run.log({"loss": 1.0})
    assert {one.resume for one in server.opened} == {"must"}
    assert len({one.process for one in server.opened}) == 1


def test_allow_waits_for_nobody(server: Server) -> None:
    release = threading.Event()
    server.misbehave = lambda request: not release.wait(10) and False
    gradwatch.init(url=server.url)
    begun = time.monotonic()
    run = gradwatch.init(url=server.url)
    assert time.monotonic() - begun < 4
    release.set()
    run.finish()


def test_settings_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_URL", server.url)
    monkeypatch.setenv("GRADWATCH_RUN_ID", "from-outside")
    monkeypatch.setenv("GRADWATCH_PROJECT", "p")
    monkeypatch.setenv("GRADWATCH_API_KEY", "secret")
    monkeypatch.setenv("GRADWATCH_LAUNCH", "job-7")
    with gradwatch.init(config=argparse.Namespace(lr=1e-3)) as run:
        assert run.id == "from-outside"
    (request,) = server.opened
    assert (request.project, request.launch, request.config) == ("p", "job-7", {"lr": 1e-3})
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_opening_a_run_again_after_its_end_is_another_launch(server: Server) -> None:
    for _ in range(2):
        with gradwatch.init(url=server.url, id="again"):
            pass
    first, second = server.opened
    assert first.process != second.process
    assert first.launch != second.launch


def test_disabled_costs_no_thread_and_no_file(tmp_path: Path) -> None:
    before = threading.active_count()
    with gradwatch.init(mode="disabled") as run:
        run.log({"loss": object()}, step="x")  # type: ignore[arg-type]
        run.log_samples([3])
        run.log_checkpoint("x")
        assert run.advice() == []
        assert run.flush()
        assert threading.active_count() == before
    assert (run.url, run.dropped) == ("", 0)
    assert not (tmp_path / "spool").exists()


def test_offline_never_looks_for_a_collector(server: Server, tmp_path: Path) -> None:
    with gradwatch.init(mode="offline", url=server.url) as run:
        run.log({"loss": 1.0})
        assert run.flush()
        assert run.advice() == []
    assert server.requests == 0
    assert len(list((tmp_path / "spool").iterdir())) == 1


def test_inprocess_writes_the_store_itself(tmp_path: Path) -> None:
    data = tmp_path / "data"
    one = gradwatch.init(mode="inprocess", data=data, id="one", quiet=True)
    two = gradwatch.init(mode="inprocess", data=data, id="two", quiet=True)
    for step in range(30):
        one.log({"loss": float(step)}, step=step)
    two.log({"loss": 7.0}, step=0)
    one.finish()
    two.finish()
    store = open_store(data)
    try:
        (curve,) = store.curves("one")
        assert curve.values == [float(step) for step in range(30)]
        assert store.curves("two")[0].values == [7.0]
        assert [one.status for one in store.attempts("one")] == ["finished"]
    finally:
        store.close()
