"""Lemma 4.2 in full, on scores that autograd makes one sequence at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradwatch.quantities.inflation import RewardPool
from gradwatch.quantities.measured_inflation import measure_inflation_by_scores
from gradwatch.quantities.rewards import measure_rewards

NAMES = ("solver", "verifier")


def score_squares(model: nn.Module, states: Tensor, actions: Tensor, weights: Tensor) -> list[float]:
    """‖w·∇ log π(a|s)‖² of each sequence, a backward for each."""
    found = []
    for state, action, weight in zip(states, actions, weights, strict=True):
        model.zero_grad()
        (weight * model(state).log_softmax(0)[action]).backward()
        found.append(sum(float(one.grad.double().square().sum()) for one in model.parameters() if one.grad is not None))
    return found


@pytest.fixture(scope="module")
def policy() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(40, 4), torch.randint(0, 3, (40,))


def test_the_terms_are_those_of_gradients_made_one_by_one(policy: tuple[nn.Module, Tensor, Tensor]) -> None:
    roles = torch.tensor([0] * 32 + [1] * 8)
    rewards = torch.where(roles == 1, 10.0, 1.0) * torch.rand(40, generator=torch.Generator().manual_seed(1))
    advantages = (rewards - rewards.mean()) / rewards.std(correction=0)
    scores, gradients = score_squares(*policy, torch.ones(40)), score_squares(*policy, advantages)
    got = measure_inflation_by_scores(advantages, torch.tensor(scores), roles, NAMES).read()
    predicted = RewardPool().add(measure_rewards(rewards, roles, NAMES).read()).inflation()
    for index, name in enumerate(NAMES):
        own = [at for at in range(40) if int(roles[at]) == index]
        mean_score = math.fsum(scores[at] for at in own) / len(own)
        mean_gradient = math.fsum(gradients[at] for at in own) / len(own)
        assert got[name]["measured_inflation"] == pytest.approx(mean_gradient / mean_score, rel=1e-5)
        assert got[name]["predicted_inflation"] == pytest.approx(predicted[name].ratio, rel=1e-5)
        assert got[name]["inflation_covariance"] == pytest.approx(
            mean_gradient - predicted[name].ratio * mean_score, rel=1e-4, abs=1e-6
        )
        assert got[name]["inflation_covariance_share"] == pytest.approx(got[name]["inflation_covariance"] / mean_gradient, rel=1e-4)


PAIRS = st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 10), st.integers(0, 1)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_the_measured_second_moment_is_the_predicted_one_and_the_covariance(rows: list[tuple[float, float, int]]) -> None:
    advantages, scores, roles = (list(column) for column in zip(*rows, strict=True))
    got = measure_inflation_by_scores(
        torch.tensor(advantages, dtype=torch.float64), torch.tensor(scores, dtype=torch.float64), torch.tensor(roles), NAMES
    ).read()
    for name, numbers in got.items():
        own = [(a, s) for a, s, role in rows if name in ("", NAMES[role])]
        mean_score = math.fsum(s for _, s in own) / len(own)
        if mean_score:
            left = numbers["measured_inflation"] * mean_score
            right = numbers["predicted_inflation"] * mean_score + numbers["inflation_covariance"]
            assert left == pytest.approx(math.fsum(a * a * s for a, s in own) / len(own), rel=1e-9, abs=1e-12)
            assert left == pytest.approx(right, rel=1e-9, abs=1e-9)


def test_scores_of_nothing_make_nan_and_not_a_division_by_zero() -> None:
    got = measure_inflation_by_scores(torch.tensor([1.0, 2.0]), torch.zeros(2)).read()[""]
    assert math.isnan(got["measured_inflation"])
    assert (got["predicted_inflation"], got["inflation_covariance"]) == (2.5, 0.0)


def test_a_sequence_without_a_number_is_left_out_and_counted() -> None:
    advantages, scores = torch.tensor([1.0, 2.0, math.nan, 1.0]), torch.tensor([1.0, 2.0, 1.0, math.inf])
    got = measure_inflation_by_scores(advantages, scores, torch.tensor([0, 0, 0, 1]), NAMES).read()
    assert (got["solver"]["measured_inflation"], got["solver"]["measured_inflation/nonfinite"]) == (3.0, 1.0)
    assert got["solver"]["inflation_covariance"] == 4.5 - 2.5 * 1.5
    assert math.isnan(got["verifier"]["measured_inflation"])
    assert got["verifier"]["measured_inflation/nonfinite"] == 1.0
