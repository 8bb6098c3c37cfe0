"""The overhead budget, with a clock that is run by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.errors import SettingsError
from gradwatch.quantities import Budget, Decision


def run(budget: Budget, steps: int, step: float, cost: float, start: float = 0.0) -> Iterator[tuple[float, Decision]]:
    """Steps of `step` seconds; a measurement adds `cost` seconds to the step that it falls into."""
    now = start
    for _ in range(steps):
        decision = budget.decide(now)
        yield now, decision
        if decision.measure:
            budget.measured(cost)
            now += cost
        now += step


def decisions(budget: Budget, steps: int, step: float, cost: float, start: float = 0.0) -> list[Decision]:
    return [decision for _, decision in run(budget, steps, step, cost, start)]


def test_what_is_cheap_is_measured_every_step_and_nothing_is_said() -> None:
    assert set(decisions(Budget(0.03), 500, step=0.1, cost=0.001)) == {Decision(measure=True, every=1)}


def test_what_is_dear_is_measured_rarely_enough_and_that_is_said_once() -> None:
    """Seconds as in the report of 3.5 s on top of a step of 2.2 s: 3.5 · .97 / .03 / 2.2 = 51.4 steps between two."""
    budget = Budget(0.03)
    made = decisions(budget, 1040, step=2.2, cost=3.5)
    assert [index for index, one in enumerate(made) if one.measure] == list(range(0, 1040, 52))
    assert [one.message for one in made if one.message] == [
        "measuring takes 3.5 s and a step 2.2 s: one step in 52 is measured, to stay below 3 % of the time (max_overhead)"
    ]
    assert 0.02 < budget.overhead <= 0.03


def test_no_limit_never_lowers_the_frequency() -> None:
    assert set(decisions(Budget(None), 100, step=0.001, cost=1.0)) == {Decision(measure=True, every=1)}


def test_it_recovers_once_measuring_is_cheap_again_and_says_so() -> None:
    budget = Budget(0.03)
    assert decisions(budget, 101, step=0.1, cost=0.1)[-1].every == 33
    made = decisions(budget, 200, step=0.1, cost=0.001, start=1000.0)
    assert [one.message for one in made if one.message] == ["measuring takes 1 ms and a step 100 ms: every step is measured again"]
    assert all(one.measure for one in made[40:])


def test_one_slow_measurement_is_paid_for_and_then_forgotten() -> None:
    budget = Budget(0.05)
    decisions(budget, 50, step=0.1, cost=0.001)
    slow = decisions(budget, 1, step=0.1, cost=1.0, start=100.0)
    made = decisions(budget, 400, step=0.1, cost=0.001, start=101.1)
    assert slow[0].measure
    assert sum(not one.measure for one in made) == math.ceil(1.0 * 0.95 / 0.05 / 0.1) - 1


def test_jitter_about_the_limit_is_not_reported_over_and_over() -> None:
    budget = Budget(0.03)
    costs = (0.00309 * (1 + 0.05 * (-1) ** index) for index in range(10**6))
    said, now = [], 0.0
    for _ in range(2000):
        decision = budget.decide(now)
        said += [decision.message] * bool(decision.message)
        if decision.measure:
            cost = next(costs)
            budget.measured(cost)
            now += cost
        now += 0.1
    assert len(said) <= 1


@settings(max_examples=50, deadline=None)
@given(
    share=st.floats(0.02, 0.5),
    step=st.floats(0.1, 10.0),
    costs=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=12),
)
def test_at_every_measurement_the_time_measured_so_far_is_within_the_share(share: float, step: float, costs: list[float]) -> None:
    budget, now, spent = Budget(share), 0.0, 0.0
    for cost in costs:
        for _ in range(10**5):
            if budget.decide(now).measure:
                break
            now += step
        assert spent <= share * now * (1 + 1e-6) + 1e-9
        budget.measured(cost)
        spent += cost
        now += cost + step


def test_a_pause_does_not_pass_for_a_slow_step() -> None:
    budget = Budget(0.03)
    decisions(budget, 11, step=0.1, cost=0.01)
    made = decisions(budget, 200, step=0.1, cost=0.01, start=10_000.0)
    assert not any(one.message for one in made)
    assert {one.every for one in made} == {4}


def test_a_first_measurement_longer_than_a_step_does_not_pass_for_steps_of_no_length() -> None:
    """A loop that decides at the end of each step reports the first step's measurement before its first decision."""
    budget = Budget(0.03)
    budget.measured(0.4)
    assert budget.decide(0.5).measure
    budget.measured(0.01)
    decision = budget.decide(0.6)
    # (0.4 + 0.01) · 0.97 / 0.03 s of training are owed, in steps of 0.09 s.
    assert decision.every == math.ceil(0.41 * 0.97 / 0.03 / 0.09)


def test_processes_that_agree_measure_at_the_same_steps() -> None:
    waits: list[float] = []

    def widest() -> Callable[[float], float]:
        # Both are asked at the same step; the slow process first, so its wait is known when the quick one asks.
        return lambda wait: (waits.append(wait), max(waits[-2:]))[1]

    slow, quick = Budget(0.03, widest()), Budget(0.03, widest())
    pairs = zip(run(slow, 300, step=0.1, cost=0.1), run(quick, 300, step=0.1, cost=0.001), strict=True)
    assert all(one.measure == other.measure for (_, one), (_, other) in pairs)


def test_a_measurement_that_is_never_reported_does_not_stop_the_budget() -> None:
    budget = Budget(0.03)
    assert all(budget.decide(float(now)).measure for now in range(10))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 3.0, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(SettingsError, match="between 0 and 1"):
        Budget(share)
