"""Detectors run behind the commits, and nothing that goes wrong there reaches anybody else."""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, ClassVar

import pytest
from collector.points import LOSS, NORM, batch_of, block_of, until

from gradwatch.collector.core import Collector
from gradwatch.detectors import DETECTORS
from gradwatch.detectors.base import Case, Parameter
from gradwatch.detectors.nonfinite import NonFinite
from gradwatch.schema import Block, Finding, Series
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Detecting, Watcher
from gradwatch.wire import OpenRun


class Broken:
    """A detector that fails at a value of 13."""

    name: ClassVar[str] = "broken"
    kind: ClassVar[str] = "broken"
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    HEALTHY: ClassVar[tuple[Case, ...]] = ()
    SICK: ClassVar[tuple[Case, ...]] = ()

    def reads(self, series: Series) -> bool:
        return True

    def load(self, state: bytes) -> Any:
        return None

    def dump(self, state: Any) -> bytes:
        return b""

    def update(self, state: Any, block: Block) -> tuple[Any, list[Finding]]:
        if 13.0 in block.value:
            raise ArithmeticError("thirteen")
        return state, []


class Slow(Broken):
    """A detector that waits until it may go on."""

    name: ClassVar[str] = "slow"

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def update(self, state: Any, block: Block) -> tuple[Any, list[Finding]]:
        self.go_on.wait(20)
        return state, []


def opened(store: LocalStore, *detectors: Any, runs: tuple[str, ...] = ("r",)) -> Collector:
    collector = Collector(store, judge=Detecting(detectors))
    collector.start()
    for run in runs:
        collector.open(OpenRun(id=run, process="p"))
    return collector


def test_an_error_in_one_runs_watcher_is_told_and_stops_no_other(store: LocalStore, caplog: pytest.LogCaptureFixture) -> None:
    collector = opened(store, Broken(), NonFinite(), runs=("bad", "good"))
    with caplog.at_level(logging.ERROR):
        collector.submit("bad", batch_of(block_of(LOSS, [13.0, math.nan]))).result(20)
        collector.submit("good", batch_of(block_of(LOSS, [1.0, math.nan]))).result(20)
        assert until(lambda: store.findings("good"))
        assert until(lambda: collector.vitals().errors_total["watcher"] == 1)
    assert store.findings("bad") == []
    told = [one for one in caplog.records if "watcher of run 'bad'" in one.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is not None
    assert until(lambda: collector.vitals().watch_lag_points == 2)
    assert collector.watching.alive
    collector.submit("bad", batch_of(block_of(LOSS, [1.0], 3), "c")).result(20)
    collector.close()


def test_the_lag_is_what_was_committed_and_not_judged(store: LocalStore) -> None:
    slow = Slow()
    collector = opened(store, slow)
    collector.submit("r", batch_of(block_of(LOSS, [1.0] * 10))).result(20)
    assert until(lambda: collector.vitals().watch_lag_seconds > 0.01)
    assert collector.vitals().watch_lag_points == 10
    collector.submit("r", batch_of(block_of(LOSS, [1.0] * 5, 11), "c")).result(20)
    assert collector.vitals().watch_lag_points == 15
    slow.go_on.set()
    assert collector.watching.wait_until_judged(20)
    assert (collector.vitals().watch_lag_points, collector.vitals().watch_lag_seconds) == (0, 0.0)
    collector.close()


def test_an_ack_does_not_wait_for_the_detectors(store: LocalStore) -> None:
    slow = Slow()
    collector = opened(store, slow)
    for at in range(10):
        assert collector.submit("r", batch_of(block_of(LOSS, [1.0], at), f"b{at}")).result(10).points == 1
    slow.go_on.set()
    collector.close()


def test_more_than_a_block_is_judged_to_the_end_and_as_at_once(store: LocalStore) -> None:
    collector = opened(store, *DETECTORS)
    norms = [1.0, 1.1, 0.9, 1.2] * 7000
    norms[20_000] = 80.0
    collector.submit("r", batch_of(block_of(NORM, norms))).result(20)
    assert collector.watching.wait_until_judged(30)
    assert [(one.finding.kind, one.finding.start_step) for one in store.findings("r")] == [("norm_spike", 20_001)]
    assert store.watch("r").sequence == 28_000
    collector.close()


def test_a_finding_that_somebody_changed_is_read_again(collector: Collector, store: LocalStore, run: str) -> None:
    collector.submit("r", batch_of(block_of(LOSS, [math.nan] * 3))).result(20)
    assert collector.watching.wait_until_judged(20)
    assert collector.watching.refresh(run) == collector.watching.findings(run)
    assert len(collector.watching.findings(run)) == 1


def test_findings_that_were_read_before_others_are_not_remembered_in_their_place(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(store)
    collector.open(OpenRun(id="r", process="p"))
    read, go_on, real = threading.Event(), threading.Event(), store.findings

    def slow(run: str) -> Any:
        found = real(run)
        if not read.is_set():
            read.set()
            go_on.wait(20)
        return found

    monkeypatch.setattr(store, "findings", slow)
    early = threading.Thread(target=collector.watching.findings, args=("r",))
    early.start()
    assert read.wait(20)
    store.append("r", block_of(LOSS, [math.nan]))
    Watcher(store, "r").catch_up()
    late = threading.Thread(target=collector.watching.refresh, args=("r",))
    late.start()
    late.join(0.2)
    go_on.set()
    early.join()
    late.join()
    assert [one.finding.kind for one in collector.watching.findings("r")] == ["nonfinite"]
    collector._writer.close()
