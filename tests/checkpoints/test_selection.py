"""Which step is recommended."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from gradwatch.checkpoints.rating import Measured, smoothed
from gradwatch.checkpoints.selection import best_step
from gradwatch.schema import Series

NAN = math.nan


def curve(metric: str, values: Sequence[float], stream: str = "train", every: int = 1, attempt: int = 1, **axes: str) -> Measured:
    steps = range(every, every * len(values) + 1, every)
    return Measured(Series(metric, metric, stream=stream, attempt=attempt, **axes), list(steps), list(values))


def step_of(*curves: Measured) -> int | None:
    best = best_step(curves)
    return best.step if best is not None else None


def test_the_lowest_held_out_loss_wins() -> None:
    assert step_of(curve("loss", [3, 2, 1.5, 1.4, 1.6, 2.0, 2.5], "eval", every=100)) == 400


def test_a_task_metric_comes_before_the_held_out_loss() -> None:
    loss = curve("loss", [1, 2, 3, 4, 5], "eval", every=100)
    wer = curve("wer", [0.9, 0.8, 0.7, 0.6, 0.5], "eval", every=100)
    best = best_step([loss, wer])
    assert best is not None
    assert (best.step, best.metric, best.value) == (500, "wer", 0.5)


def test_one_lucky_value_does_not_win() -> None:
    assert step_of(curve("reward", [0.1] * 10 + [5.0] + [0.1] * 10 + [0.8, 0.9, 0.9, 0.9, 0.8] + [0.2] * 10)) in range(22, 27)


def test_a_bad_value_in_good_company_does_not_win() -> None:
    assert step_of(curve("accuracy", [0.3, 0.8, 0.1, 0.8, 0.3, 0.3], "eval")) != 3


def test_a_run_that_still_improves_is_best_at_its_end() -> None:
    assert step_of(curve("reward", [i / 50 for i in range(50)])) == 50


def test_the_first_of_many_evaluations_is_not_held_back_by_smoothing() -> None:
    assert step_of(curve("loss", [1.0, 1.1, 1.2, 1.3, 1.4], "eval")) == 1


@pytest.mark.parametrize("bad", ["loss", "grad_norm"])
def test_a_step_after_a_nonfinite_loss_or_gradient_is_vetoed(bad: str) -> None:
    held_out = curve("accuracy", [0.5, 0.6, 0.9, 0.7, 0.6], "eval", every=10)
    training = curve(bad, [1.0] * 24 + [NAN] + [1.0] * 25)
    best = best_step([held_out, training])
    assert best is not None
    assert best.step != 30
    assert "non-finite" in best.reason


def test_a_nonfinite_value_of_the_metric_itself_is_never_best() -> None:
    assert step_of(curve("accuracy", [0.5, 0.6, math.inf, 0.7, 0.6], "eval")) != 3


def test_without_held_out_metric_the_reward_decides() -> None:
    assert step_of(curve("loss", [1.0] * 30), curve("reward", [i % 20 for i in range(30)])) is not None


def test_nothing_is_recommended_without_evidence() -> None:
    assert best_step([]) is None
    assert step_of(curve("loss", [3.0, 2.0, 1.0])) is None
    assert step_of(curve("reward", [0.5] * 40)) is None
    assert step_of(curve("accuracy", [NAN] * 5, "eval")) is None


def test_the_newest_attempt_is_meant() -> None:
    old = curve("accuracy", [0.9, 0.95, 0.99, 0.9], "eval", attempt=1)
    new = curve("accuracy", [0.5, 0.6, 0.7, 0.6], "eval", every=5, attempt=2)
    assert step_of(old, new) == 15


def test_a_single_role_does_not_speak_for_the_run() -> None:
    assert step_of(curve("reward", [float(i) for i in range(30)], role="solver")) is None


def test_smoothing_is_a_running_median_whole_at_the_ends() -> None:
    assert list(smoothed([5, 1, 3, 2, 9], 3)) == [3, 3, 2, 3, 3]
    assert list(smoothed([4, 2], 3)) == [3, 3]
    assert list(smoothed([], 3)) == []


def test_of_equal_steps_the_latest_is_named_and_the_rest_counted() -> None:
    best = best_step([curve("accuracy", [0.1, 0.8, 0.8, 0.8, 0.3], "eval")])
    assert best is not None
    assert best.step == 4
    assert "the latest of 3 equally good ones" in best.reason


def test_the_step_right_after_a_nonfinite_value_of_the_metric_is_vetoed() -> None:
    best = best_step([curve("accuracy", [0.5, 0.6, NAN, 0.9, 0.7, 0.7, 0.6], "eval")])
    assert best is not None
    assert best.step != 4
    assert "left out" in best.reason


def test_an_evaluation_by_data_set_speaks_where_nothing_else_does() -> None:
    assert step_of(curve("accuracy", [0.5, 0.6, 0.7, 0.6], "eval", role="gsm8k")) == 3
