"""Which saved checkpoint is recommended."""

from __future__ import annotations

import math

import pytest

from gradwatch.checkpoints.rating import Kept, Measured, best_checkpoint
from gradwatch.checkpoints.selection import Wish, best_of_run, best_step, rate
from gradwatch.errors import GradwatchError
from gradwatch.schema import Block, Checkpoint, RunInfo, Series
from gradwatch.store import open_store

NAN = math.nan
ACCURACY = Series("accuracy", "eval/accuracy", stream="eval")
LOSS = Series("loss", "loss")


def accuracy(*values: float) -> Measured:
    return Measured(ACCURACY, [10 * (at + 1) for at in range(len(values))], list(values))


def saved(*steps: int, attempt: int = 1) -> list[Checkpoint]:
    return [Checkpoint(step=step, uri=f"/out/{step}", attempt=attempt) for step in steps]


def kept(curves: list[Measured], checkpoints: list[Checkpoint], wish: Wish = Wish()) -> Kept | None:  # noqa: B008
    rated = rate(curves, wish)
    assert rated is not None
    return best_checkpoint(rated, checkpoints)


RISE_AND_FALL = accuracy(0.1, 0.3, 0.5, 0.8, 0.9, 0.9, 0.6, 0.4)


def test_the_best_rated_saved_step_is_kept() -> None:
    best = kept([RISE_AND_FALL], saved(20, 50, 80))
    assert best is not None
    assert (best.checkpoints[0].step, best.value, best.measured) == (50, 0.9, 50)
    assert best.reason == "best of 3 saved steps by eval/accuracy at or before its step"


def test_weights_saved_between_two_evaluations_are_rated_by_the_earlier_one() -> None:
    best = kept([RISE_AND_FALL], saved(25, 47))
    assert best is not None
    assert (best.checkpoints[0].step, best.measured) == (47, 40)


def test_weights_saved_before_the_first_evaluation_have_no_rating() -> None:
    assert kept([RISE_AND_FALL], saved(5)) is None


def test_weights_saved_after_a_non_finite_loss_are_left_out_though_the_evaluation_before_was_good() -> None:
    loss = Measured(LOSS, list(range(1, 81)), [NAN if step == 53 else 1.0 for step in range(1, 81)])
    best = kept([RISE_AND_FALL, loss], saved(30, 57))
    assert best is not None
    assert best.checkpoints[0].step == 30
    assert "1 left out" in best.reason


def test_of_equals_the_latest_is_kept_and_all_policies_of_its_step() -> None:
    both = [Checkpoint(step=60, uri=f"/out/{policy}", attempt=1, policy=policy) for policy in ("solver", "verifier")]
    best = kept([accuracy(0.1, 0.5, 0.5, 0.5, 0.5, 0.5)], [*saved(40), *both])
    assert best is not None
    assert best.checkpoints == tuple(both)


def test_checkpoints_of_an_older_attempt_do_not_count() -> None:
    assert kept([RISE_AND_FALL], saved(50, attempt=2)) is None


def test_a_metric_that_is_asked_for_decides_and_its_direction_may_be_said() -> None:
    length = Measured(Series("my/length", "my/length"), [10, 20, 30], [5.0, 1.0, 3.0])
    assert best_step([RISE_AND_FALL, length], Wish("my/length", "min")) == best_step([length], Wish("my/length", "min"))
    shortest = best_step([RISE_AND_FALL, length], Wish("my/length", "min"))
    longest = best_step([RISE_AND_FALL, length], Wish("my/length"))
    assert shortest is not None
    assert longest is not None
    assert shortest.metric == "my/length"
    assert (shortest.step, longest.step) != (20, 20)


def test_a_metric_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(GradwatchError, match=r"no metric 'bleu'.*eval/accuracy"):
        rate([RISE_AND_FALL], Wish("bleu"))


def test_a_kept_run_s_best_step_is_that_of_its_curves() -> None:
    store = open_store(None)
    store.put_run(RunInfo("r1", "r1"))
    block = Block()
    for step, value in zip(RISE_AND_FALL.steps, RISE_AND_FALL.values, strict=True):
        block.add(ACCURACY, step, value)
        block.add(Series("my/own", "my/own"), step, 0.0)
    store.append("r1", block)
    assert best_of_run(store, "r1") == best_step([RISE_AND_FALL])
    assert best_of_run(store, "r1", Wish("my/own")) is None
    store.close()
