"""Advice follows from the findings that are open, and from nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gradwatch.collector.advice import advise
from gradwatch.schema import Checkpoint, Finding, StoredFinding


def found(kind: str = "nonfinite", severity: str = "critical", start: int = 100, end: int = 105, **more: Any) -> StoredFinding:
    about = {name: more.pop(name) for name in ("attempt", "policy", "closed", "stream") if name in more}
    finding = Finding(
        kind=kind,
        detector=kind,
        severity=severity,
        metric="loss",
        start_step=start,
        end_step=end,
        message="it went wrong",
        suggestion="",
        **about,
    )
    return StoredFinding(id="f", run="r", finding=finding, **more)


def actions(one: StoredFinding, checkpoints: tuple[Checkpoint, ...] = (), steps: dict[str, int] | None = None, now: float = 50.0):
    return [(advice.action, advice.step, advice.uri) for advice in advise([one], checkpoints, 1, steps or {"train": 105}, now)]


def saved(step: int, **more: Any) -> Checkpoint:
    return Checkpoint(step=step, uri=f"out/{step}", attempt=more.pop("attempt", 1), **more)


def test_without_a_checkpoint_the_advice_is_to_stop() -> None:
    assert actions(found()) == [("stop", None, "")]


def test_the_newest_checkpoint_before_the_trouble_is_the_one_to_go_back_to() -> None:
    assert actions(found(), (saved(50), saved(90), saved(100), saved(104))) == [("rollback", 90, "out/90")]


def test_a_checkpoint_at_the_first_bad_step_is_not_before_it() -> None:
    assert actions(found(), (saved(100),)) == [("stop", None, "")]


def test_a_checkpoint_of_the_own_attempt_goes_before_a_later_step_of_an_earlier_one() -> None:
    one = found(attempt=2)
    checkpoints = (saved(95, attempt=1), saved(50, attempt=2))
    assert [advice.step for advice in advise([one], checkpoints, 2, {}, 0.0)] == [50]


def test_another_policys_checkpoint_does_not_help() -> None:
    assert actions(found(policy="verifier"), (saved(90, policy="solver"),)) == [("stop", None, "")]
    assert actions(found(policy="verifier"), (saved(80), saved(90, policy="solver"))) == [("rollback", 80, "out/80")]


def test_a_spike_is_skipped_while_it_is_the_newest_step_and_left_alone_afterwards() -> None:
    assert actions(found("norm_spike", end=105)) == [("skip_step", 105, "")]
    assert actions(found("norm_spike", end=104), (saved(50),)) == []


@pytest.mark.parametrize(
    "quiet",
    [
        found(severity="warning"),
        found(false_alarm=True),
        found(silenced_until=51.0),
        found(status="resolved"),
        found(status="acknowledged"),
        found(closed=True),
        found(attempt=2),
    ],
)
def test_what_calls_for_nobody_advises_nothing(quiet: StoredFinding) -> None:
    assert actions(quiet, (saved(50),)) == []


def test_a_silence_ends() -> None:
    assert actions(found(silenced_until=50.0)) == [("stop", None, "")]
