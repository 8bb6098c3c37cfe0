"""F_k against hand sums, and the identity that binds all of them."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.metrics import metric
from gradwatch.quantities.inflation import RewardPool
from gradwatch.quantities.rewards import measure_rewards

NAMES = ("solver", "verifier", "judge")
Step = list[tuple[float, int]]
STEPS = st.lists(st.lists(st.tuples(st.floats(-100, 100, width=32), st.integers(0, 2)), min_size=1, max_size=10), max_size=5)


def pool_of(*steps: Step) -> RewardPool:
    pool = RewardPool()
    for step in steps:
        rewards, roles = zip(*step, strict=True)
        pool = pool.add(measure_rewards(list(rewards), torch.tensor(roles), NAMES).read())
    return pool


def slow_inflation(own: list[float], everyone: list[float]) -> float:
    gap = statistics.fmean(own) - statistics.fmean(everyone)
    return (statistics.pvariance(own) + gap**2) / statistics.pvariance(everyone)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_steps_pooled_one_by_one_are_all_rewards_at_once(steps: list[Step]) -> None:
    everyone = [reward for step in steps for reward, _ in step]
    got = pool_of(*steps).inflation()
    owned = {name: [reward for step in steps for reward, role in step if role == at] for at, name in enumerate(NAMES)}
    assert set(got) == {name for name, own in owned.items() if own}
    if len(set(everyone)) > 1 and statistics.pstdev(everyone) > 1e-3:
        expected = {name: slow_inflation(own, everyone) for name, own in owned.items() if own}
        assert {name: one.ratio for name, one in got.items()} == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert sum(one.share * one.ratio for one in got.values()) == pytest.approx(1, abs=1e-6)


def test_a_rare_role_of_other_rewards_is_inflated_by_up_to_one_over_its_share() -> None:
    got = pool_of([(0.0, 0)] * 9 + [(10.0, 1)]).inflation()
    assert (got["verifier"].share, got["verifier"].ratio) == pytest.approx((0.1, 9.0))
    assert got["solver"].ratio == pytest.approx(1 / 9)
    assert (got["verifier"].mean_gap, got["verifier"].var_ratio) == pytest.approx((9.0, 0.0))
    assert got["verifier"].note == "'verifier' has one reward: its spread counts as 0"


@pytest.mark.parametrize("steps", [[(0.99, 0)] * 7 + [(0.99, 1)] * 6, [(1e-200, 0), (2e-200, 1)]])
def test_rewards_without_a_spread_have_no_inflation_and_say_so(steps: Step) -> None:
    got = pool_of(steps).inflation()["solver"]
    assert math.isnan(got.ratio)
    assert math.isnan(got.var_ratio)
    assert "there is no spread to divide by" in got.note


def test_one_reward_alone_has_no_inflation_and_says_so() -> None:
    got = pool_of([(3.0, 0)]).inflation()["solver"]
    assert math.isnan(got.ratio)
    assert got.note.startswith("there is one reward")


def test_a_missing_reward_is_no_part_of_the_pool() -> None:
    step: Step = [(1.0, 0), (2.0, 0), (5.0, 1)]
    assert pool_of([*step, (math.nan, 0), (math.inf, 1), (math.nan, 2)]).inflation() == pool_of(step).inflation()


def test_a_pool_without_rewards_says_nothing() -> None:
    assert RewardPool().inflation() == {}
    assert RewardPool().add(measure_rewards([None]).read()).inflation() == {}


def test_its_numbers_are_in_the_catalogue() -> None:
    assert all(metric(key) for key in pool_of([(1.0, 0), (2.0, 1)]).inflation()["solver"].as_metrics())
