"""The watcher judges what was committed, once, wherever it was stopped and however it was cut."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwatch.detectors.norm_spike import NormSpike
from gradwatch.schema import Block, Finding, RunInfo, Series
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Detecting, Watcher

NORM = Series("grad_norm", "grad_norm")
REWARD = Series("reward", "reward")


def curve(series: Series, values: list[float], first: int = 1) -> Block:
    block = Block()
    for step, value in enumerate(values, first):
        block.add(series, step, value)
    return block


NORMS = [1.0, 1.1, 0.9, 1.2] * 10 + [30.0] + [1.0, 1.1] * 10 + [math.nan] + [1.0] * 30


@pytest.fixture
def store() -> Iterator[LocalStore]:
    opened = open_store(None)
    opened.put_run(RunInfo("r1", "r1"))
    yield opened
    opened.close()


def found(store: LocalStore) -> list[Finding]:
    return [one.finding for one in store.findings("r1")]


def summary(findings: list[Finding]) -> list[tuple[str, int, int, str]]:
    return [(one.kind, one.start_step, one.end_step, one.severity) for one in findings]


def test_what_was_committed_is_judged(store: LocalStore) -> None:
    store.append("r1", curve(NORM, NORMS))
    Watcher(store, "r1").catch_up()
    assert summary(found(store)) == [("norm_spike", 41, 41, "critical"), ("nonfinite", 62, 62, "warning")]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_cut_into_blocks_changes_nothing(store: LocalStore, size: int) -> None:
    store.append("r1", curve(NORM, NORMS))
    Watcher(store, "r1").catch_up(block_size=size)
    whole = open_store(None)
    whole.put_run(RunInfo("r1", "r1"))
    whole.append("r1", curve(NORM, NORMS))
    Watcher(whole, "r1").catch_up()
    assert found(store) == found(whole)
    whole.close()


def test_a_restarted_watcher_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for start in range(0, len(NORMS), 13):
        store = open_store(tmp_path)
        store.put_run(RunInfo("r1", "r1"))
        store.append("r1", curve(NORM, NORMS[start : start + 13], first=start + 1))
        watcher = Watcher(store, "r1")
        assert watcher.sequence == start
        watcher.catch_up()
        store.close()
    store = open_store(tmp_path)
    assert summary(found(store)) == [("norm_spike", 41, 41, "critical"), ("nonfinite", 62, 62, "warning")]
    store.close()


def test_an_episode_is_extended_not_repeated(store: LocalStore) -> None:
    watcher = Watcher(store, "r1")
    for at, value in enumerate([0.5] * 3 + [math.nan] * 4, 1):
        store.append("r1", curve(REWARD, [value], first=at))
        watcher.catch_up()
    assert summary(found(store)) == [("nonfinite", 4, 7, "critical")]
    assert [one.status for one in store.findings("r1")] == ["open"]


def test_a_closed_episode_is_resolved_and_a_later_one_is_new(store: LocalStore) -> None:
    store.append("r1", curve(REWARD, [math.nan, *[0.5] * 25, math.inf]))
    Watcher(store, "r1").catch_up()
    assert [(one.finding.episode, one.status) for one in store.findings("r1")] == [(1, "resolved"), (2, "open")]


def test_nothing_is_judged_twice(store: LocalStore) -> None:
    store.append("r1", curve(NORM, NORMS))
    watcher = Watcher(store, "r1")
    assert watcher.catch_up()
    assert watcher.catch_up() == []
    assert Watcher(store, "r1").catch_up() == []


def test_only_the_detectors_asked_for_run(store: LocalStore) -> None:
    store.append("r1", curve(NORM, NORMS))
    Watcher(store, "r1", Detecting((NormSpike(),))).catch_up()
    assert {one.kind for one in found(store)} == {"norm_spike"}


def test_roles_are_judged_apart(store: LocalStore) -> None:
    solver = Series("grad_norm", "train/solver/grad_norm", role="solver")
    verifier = Series("grad_norm", "train/verifier/grad_norm", role="verifier")
    block = Block()
    for step in range(1, 60):
        block.add(solver, step, 1.0 + step % 3 / 10)
        block.add(verifier, step, 100.0 if step == 40 else 8.0 + step % 3 / 10)
    store.append("r1", block)
    Watcher(store, "r1").catch_up()
    assert [(one.role, one.start_step) for one in found(store)] == [("verifier", 40)]


def test_an_undefined_auxiliary_metric_does_not_hide_a_loss_that_fails_later(store: LocalStore) -> None:
    block = Block()
    for step in range(1, 101):
        block.add(Series("explained_variance", "explained_variance"), step, math.nan if step % 2 else 0.5)
        block.add(Series("loss", "loss"), step, math.nan if step >= 90 else 1.0)
    store.append("r1", block)
    Watcher(store, "r1").catch_up()
    assert summary(found(store)) == [("nonfinite", 1, 99, "warning"), ("nonfinite", 90, 100, "critical")]


def test_what_a_loss_drags_along_is_listed_under_it(store: LocalStore) -> None:
    block = Block()
    for step in range(1, 41):
        for name in ("loss", "entropy", "my/own"):
            block.add(Series(name, name), step, math.nan if step >= 30 else 1.0)
    store.append("r1", block)
    Watcher(store, "r1").catch_up()
    (one,) = found(store)
    assert (one.metric, one.evidence["others"]) == ("loss", ["entropy", "my/own"])
