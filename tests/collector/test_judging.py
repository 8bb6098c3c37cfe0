"""Detectors in a process of their own: the same verdicts, and a collector that survives whatever becomes of it."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from collector.points import LOSS, NORM, batch_of, block_of

from gradwatch.collector import watching
from gradwatch.collector.core import Collector
from gradwatch.collector.judging import ChildJudge, JudgingError
from gradwatch.schema import Block
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Detecting
from gradwatch.wire import OpenRun

NORMS = [1.0, 1.1, 0.9, 1.2] * 10 + [30.0] + [1.0, 1.1] * 10 + [math.nan] + [1.0] * 5


@pytest.fixture
def judge() -> Iterator[ChildJudge]:
    one = ChildJudge()
    yield one
    one.close()


def child_of(judge: ChildJudge) -> int:
    assert judge._child is not None
    return judge._child.pid


def blocks() -> list[Block]:
    return [block_of(NORM, NORMS[at : at + 9], first=at + 1) for at in range(0, len(NORMS), 9)]


def test_a_child_judges_as_this_process_does(judge: ChildJudge) -> None:
    here = Detecting()
    for run in ("r1", "r2"):
        here.begin(run, {})
        judge.begin(run, {})
    for block in blocks():
        assert judge.judge("r1", block) == here.judge("r1", block)
    assert judge.judge("r2", block_of(LOSS, [math.inf])) == here.judge("r2", block_of(LOSS, [math.inf]))


def test_states_go_on_in_another_child(judge: ChildJudge) -> None:
    whole = Detecting()
    whole.begin("r", {})
    states: dict[str, bytes] = {}
    for block in blocks():
        other = ChildJudge()
        other.begin("r", states)
        verdict = other.judge("r", block)
        other.close()
        assert verdict == whole.judge("r", block)
        states = verdict.states


def test_a_child_that_was_killed_is_told_and_followed_by_another(judge: ChildJudge) -> None:
    judge.begin("r", {})
    judge.judge("r", blocks()[0])
    os.kill(child_of(judge), signal.SIGKILL)
    with pytest.raises(JudgingError, match="has ended"):
        judge.judge("r", blocks()[1])
    judge.begin("r", {})
    assert judge.judge("r", block_of(LOSS, [math.nan])).findings


def test_a_run_that_was_forgotten_is_no_longer_known(judge: ChildJudge) -> None:
    judge.begin("r", {})
    judge.forget("r")
    with pytest.raises(JudgingError, match="KeyError"):
        judge.judge("r", blocks()[0])


def test_a_child_ends_with_its_pipe(judge: ChildJudge) -> None:
    judge.begin("r", {})
    judge.judge("r", blocks()[0])
    pid = child_of(judge)
    judge.close()
    judge.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_collector_whose_child_is_killed_judges_everything_once(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.1)
    judge = ChildJudge()
    collector = Collector(store, judge=judge)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    for at, block in enumerate(blocks()):
        collector.submit("r", batch_of(block, f"b{at}")).result(20)
        assert collector.watching.wait_until_judged(20)
        if at % 2:
            os.kill(child_of(judge), signal.SIGKILL)
    collector.close()
    judge.close()
    here = Detecting()
    here.begin("r", {})
    expected = {one.fingerprint(): one for block in blocks() for one in here.judge("r", block).findings}
    assert {one.finding.fingerprint() for one in store.findings("r")} == set(expected)
    assert store.watch("r").sequence == len(NORMS)


def test_a_file_of_the_working_directory_is_not_imported(
    judge: ChildJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    judge.begin("r", {})
    assert [one.kind for one in judge.judge("r", block_of(LOSS, [math.nan])).findings] == ["nonfinite"]
