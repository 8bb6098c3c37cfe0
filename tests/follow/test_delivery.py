"""Between a log and the collector nothing is lost and nothing doubled, whatever stops in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradwatch.collector.inprocess import InProcess
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import Ack, Batch, Opened, OpenRun


def add(path: Path, *steps: int) -> None:
    with path.open("a") as log:
        log.writelines(f'{{"step": {step}, "loss": {step}.5}}\n' for step in steps)


class Cut:
    """The collector behind a connection that breaks at the n-th batch, before or after it arrived, and stays broken."""

    def __init__(self, inner: InProcess, at: int, arrives: bool) -> None:
        self.inner, self.at, self.arrives = inner, at, arrives
        self.broken = False

    def open(self, request: OpenRun) -> Opened:
        return self.inner.open(request)

    def send(self, run: str, batch: Batch) -> Ack:
        self.at -= 1
        if self.at < 0:
            if self.arrives and not self.broken:
                self.inner.send(run, batch)
            self.broken = True
            raise UnavailableError("the connection is cut")
        return self.inner.send(run, batch)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "arrived"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_follower_that_died_while_it_sent_goes_on_where_the_collector_is(following: Any, at: int, arrives: bool) -> None:
    log = following.folder / "run.jsonl"
    cut = Cut(following.collector, at, arrives)
    following.start(transport=cut)
    for step in range(at):
        add(log, step)
        following.has("run", "loss", *range(step + 1))
    add(log, at)
    following.until(lambda: cut.broken)
    following.restart()
    add(log, at + 1)
    following.has("run", "loss", *range(at + 2))
    assert following.written("run") == at + 2
    assert [one.number for one in following.query.attempts(following.run("run"))] == [1]


def test_a_collector_that_is_away_is_waited_for_and_said(following: Any) -> None:
    class Away(Cut):
        def send(self, run: str, batch: Batch) -> Ack:
            if self.broken:
                raise UnavailableError("no collector answers", retry_after=0.01)
            return self.inner.send(run, batch)

    away = Away(following.collector, 0, False)
    away.broken = True
    add(following.folder / "run.jsonl", 0, 1)
    following.start(transport=away)
    following.until(lambda: any("no collector answers" in one.trouble for one in following.statuses()))
    add(following.folder / "run.jsonl", 2, 3)
    away.broken = False
    following.has("run", "loss", 0, 1, 2, 3)
    following.until(lambda: following.statuses()[0].trouble == "")


def test_a_collector_that_refuses_is_told_of(following: Any) -> None:
    class Refusing(Cut):
        def open(self, request: OpenRun) -> Opened:
            raise RefusedError("the key is not valid", 401)

    add(following.folder / "run.jsonl", 0, 1)
    following.start(transport=Refusing(following.collector, 0, False))
    following.until(lambda: following.state("run.jsonl") == "refused")
    assert following.statuses()[0].trouble == "the key is not valid"


def test_a_collector_that_starts_anew_is_told_all(following: Any, tmp_path: Path) -> None:
    log = following.folder / "run.jsonl"
    add(log, 0, 1, 2)
    following.start()
    following.has("run", "loss", 0, 1, 2)
    following.stop()
    old, following.collector = following.collector, InProcess(tmp_path / "other")
    old.close()
    following.start()
    following.has("run", "loss", 0, 1, 2)
    add(log, 3)
    following.has("run", "loss", 0, 1, 2, 3)
    assert following.written("run") == 4


def test_what_cannot_be_remembered_is_told_as_a_new_attempt(following: Any) -> None:
    log = following.folder / "run.jsonl"
    following.memory.write_text("a file where the folder should be")
    add(log, 0, 1)
    following.start()
    following.has("run", "loss", 0, 1)
    assert "GRADWATCH_DIR" in following.statuses()[0].warnings[0]
    following.restart()
    following.has("run", "loss", 0, 1, attempt=2)


def test_a_log_that_is_idle_for_long_has_ended_and_one_that_goes_on_has_not(following: Any) -> None:
    log = following.folder / "run.jsonl"
    add(log, 0, 1)
    following.start(end_after=0.5)
    following.has("run", "loss", 0, 1)
    following.until(lambda: following.state("run.jsonl") == "ended")
    assert following.query.state(following.run("run")).status == "finished"
    following.restart(end_after=60.0)  # which remembers that it had ended, however long it is to wait now
    following.until(lambda: following.state("run.jsonl") == "ended")
    add(log, 2)
    following.has("run", "loss", 0, 1, 2)
    assert following.query.state(following.run("run")).status == "running"
    following.restart(end_after=0.5)
    following.until(lambda: following.query.state(following.run("run")).status == "finished")
    assert [one.number for one in following.query.attempts(following.run("run"))] == [1]
    assert following.written("run") == 3


def test_stopping_to_follow_does_not_end_the_run(following: Any) -> None:
    add(following.folder / "run.jsonl", 0)
    following.start()
    following.has("run", "loss", 0)
    following.stop()
    assert following.query.state(following.run("run")).status == "running"
