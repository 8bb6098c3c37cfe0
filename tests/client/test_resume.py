"""Runs that end and come back, from the client to the store: attempts, rewritten steps, streams of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import gradwatch
from gradwatch.client.sync import sync
from gradwatch.collector.inprocess import InProcess
from gradwatch.schema import Selection
from gradwatch.store import open_store


def log(data: Path, steps: range, value: float, status: str = "finished") -> None:
    run = gradwatch.init(mode="inprocess", data=data, id="r", quiet=True)
    for step in steps:
        run.log({"loss": value}, step=step)
    run.finish(status)


def curve(data: Path, attempt: int) -> tuple[list[int], list[float]]:
    store = open_store(data)
    try:
        (found,) = store.curves("r", Selection(attempt=attempt))
        return found.steps, found.values
    finally:
        store.close()


def test_a_crash_at_step_1000_and_a_restart_at_500_are_two_attempts(tmp_path: Path) -> None:
    log(tmp_path, range(990, 1000), 1.0, "failed")
    log(tmp_path, range(500, 510), 2.0)
    assert curve(tmp_path, 1) == (list(range(990, 1000)), [1.0] * 10)
    assert curve(tmp_path, 2) == (list(range(500, 510)), [2.0] * 10)
    store = open_store(tmp_path)
    assert [(one.number, one.status) for one in store.attempts("r")] == [(1, "failed"), (2, "finished")]
    store.close()


def test_a_step_that_is_logged_again_is_rewritten_and_both_are_kept(tmp_path: Path) -> None:
    with gradwatch.init(mode="inprocess", data=tmp_path, id="r", quiet=True) as run:
        for step, value in ((0, 0.0), (1, 11.0), (2, 2.0), (1, 99.0)):
            run.log({"loss": value}, step=step)
            assert run.flush()
    assert curve(tmp_path, 1) == ([0, 1, 2], [0.0, 99.0, 2.0])
    store = open_store(tmp_path)
    assert [point.value for _, block in store.replay("r") for point in block if point.step == 1] == [11.0, 99.0]
    store.close()


def test_ranks_of_one_launch_share_an_attempt_and_a_restarted_rank_opens_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("GRADWATCH_LAUNCH", "job")
    for rank in ("0", "1", "0", "1"):
        monkeypatch.setenv("RANK", rank)
        log(tmp_path, range(2), float(rank))
    store = open_store(tmp_path)
    assert [one.number for one in store.attempts("r")] == [1, 2]
    assert {(one.attempt, one.rank) for _, block in store.replay("r") for one in block.series} == {(1, -1), (1, 1), (2, -1), (2, 1)}
    store.close()


def test_a_forked_child_of_an_inprocess_run_writes_a_spool_that_sync_delivers(tmp_path: Path) -> None:
    run = gradwatch.init(mode="inprocess", data=tmp_path / "data", dir=tmp_path / "spool", id="r", quiet=True)
    run.log({"parent": 1.0})
    child = os.fork()
    if child == 0:
        run.log({"child": 1.0})
        run.finish()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    run.finish()
    result = sync(tmp_path / "spool", lambda: InProcess(tmp_path / "data"), progress=lambda line: None)
    assert result.runs["r"].points == 1
    store = open_store(tmp_path / "data")
    assert {found.series.source_key for found in store.curves("r")} == {"parent", "child"}
    assert [one.number for one in store.attempts("r")] == [1]
    store.close()
