"""Series read one by one, as arrays: what a report needs of a run that does not fit into memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwatch.schema import Block, RunInfo, Series
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore

LOSS, NORM, EMPTY = Series("loss", "loss"), Series("grad_norm", "grad_norm", role="solver"), Series("kl", "kl")


@pytest.fixture(params=["memory", "disk", "disk with little memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalStore]:
    kind = request.param
    opened = open_store(None) if kind == "memory" else open_store(tmp_path, memory_mb=64 if "little" in kind else None)
    opened.put_run(RunInfo("r1", "r1"))
    yield opened
    opened.close()


def filled(store: LocalStore) -> None:
    block = Block()
    for step in (3, 1, 2):
        block.add(LOSS, step, step / 2)
    block.add(NORM, 7, math.nan)
    block.add(LOSS, 2, math.inf)
    store.append("r1", block)


def test_a_span_is_a_series_first_and_last_step(store: LocalStore) -> None:
    filled(store)
    assert [(one.series, one.first_step, one.last_step) for one in store.spans("r1")] == [(LOSS, 1, 3), (NORM, 7, 7)]


def test_traces_are_the_curves(store: LocalStore) -> None:
    filled(store)
    traced = [(one.series, list(one.steps), repr(list(one.values))) for one in store.traces("r1", {LOSS, NORM, EMPTY})]
    assert traced == [(one.series, one.steps, repr(one.values)) for one in store.curves("r1")]
    assert traced[0][1:] == ([1, 2, 3], "[0.5, inf, 1.5]")


def test_only_what_is_wanted_is_traced(store: LocalStore) -> None:
    filled(store)
    assert [one.series for one in store.traces("r1", {NORM})] == [NORM]
    assert list(store.traces("r1", set())) == []


def test_a_run_without_points_has_no_spans(store: LocalStore) -> None:
    assert store.spans("r1") == []


def test_little_memory_is_enough_for_many_points(tmp_path: Path) -> None:
    store = open_store(tmp_path / "small", memory_mb=48)
    store.put_run(RunInfo("r1", "r1"))
    for start in range(0, 500_000, 50_000):
        block = Block()
        for step in range(start, start + 50_000):
            block.add(LOSS, step, float(step))
        store.append("r1", block)
    (trace,) = store.traces("r1", {LOSS})
    assert trace.values[-1] == 499_999
    assert len(trace.steps) == 500_000
    store.close()
