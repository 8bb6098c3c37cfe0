"""Importance ratios and clip fractions against plain Python, and against the gradient of PPO's own loss."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, metrics, positions, sequences_of, tokens_of, values
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.importance_ratio import measure_clip_fraction, measure_importance_ratio
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import place_tokens

LOW, HIGH = 0.2, 0.28


def ratios(batch: PolicyBatch) -> list[float]:
    assert batch.old_logprobs_BT is not None
    pairs = zip(values(batch.logprobs_BT), values(batch.old_logprobs_BT), strict=True)
    return [math.exp(new - old) for new, old in pairs]


@settings(max_examples=80, deadline=None)
@given(batches())
def test_ratios_equal_the_slow_twin(batch: PolicyBatch) -> None:
    assert batch.old_logprobs_BT is not None
    got = measure_importance_ratio(tokens_of(batch), batch.logprobs_BT, batch.old_logprobs_BT).read()
    each, there = ratios(batch), positions(batch)
    assert set(got) == set(there)
    for role, found in there.items():
        own = [each[one.at] for one in found]
        squares = math.fsum(one * one for one in own)
        expected = {
            "importance_ratio/mean": statistics.fmean(own),
            "importance_ratio/std": statistics.pstdev(own),
            "importance_ratio/min": min(own),
            "importance_ratio/max": max(own),
            "importance_ratio/count": len(own),
            "importance_ratio/nonfinite": 0.0,
            "chi2_token": squares / len(own) - 1,
            "effective_sample_size": math.fsum(own) ** 2 / (len(own) * squares),
        }
        assert got[role] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(batches())
def test_clip_fractions_equal_the_slow_twin(batch: PolicyBatch) -> None:
    assert batch.old_logprobs_BT is not None
    assert batch.advantages is not None
    tokens = tokens_of(batch)
    got = measure_clip_fraction(tokens, batch.logprobs_BT, batch.old_logprobs_BT, batch.advantages, LOW, HIGH).read()
    each, sequences = ratios(batch), sequences_of(batch).reshape(-1).tolist()
    given_ = values(batch.advantages)
    advantages = given_ if batch.advantages.dim() == 2 else [given_[sequence] for sequence in sequences]
    for role, own in positions(batch).items():
        low = sum(each[one.at] < 1 - LOW and advantages[one.at] < 0 for one in own) / len(own)
        high = sum(each[one.at] > 1 + HIGH and advantages[one.at] > 0 for one in own) / len(own)
        assert got[role] == pytest.approx({"clip_fraction": low + high, "clip_fraction_low": low, "clip_fraction_high": high})


def clipped_tokens(logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    """Those of whose log-probability the gradient of PPO's loss is 0, by autograd."""
    leaf = logprobs.clone().requires_grad_()
    ratio = (leaf - old).exp()
    torch.minimum(ratio * advantages, ratio.clamp(1 - LOW, 1 + HIGH) * advantages).sum().backward()
    assert leaf.grad is not None
    return (leaf.grad == 0).double()


def test_a_token_is_clipped_exactly_where_the_loss_gives_it_no_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    logprobs, old, advantages = (torch.randn(8, 50, generator=generator, dtype=torch.float64) for _ in range(3))
    got = measure_clip_fraction(place_tokens(torch.ones(8, 50)), logprobs, old, advantages, LOW, HIGH).read()
    assert got[""]["clip_fraction"] == pytest.approx(float(clipped_tokens(logprobs, old, advantages).mean()))
    assert 0.2 < got[""]["clip_fraction"] < 0.8


def test_a_token_without_an_advantage_has_nothing_to_clip() -> None:
    logprobs, advantages = torch.tensor([[1.0, -1.0, 1.0]]), torch.tensor([[0.0, 0.0, math.nan]])
    got = measure_clip_fraction(place_tokens(torch.ones(1, 3)), logprobs, torch.zeros(1, 3), advantages, LOW, HIGH).read()
    assert got[""] == {"clip_fraction": 0.0, "clip_fraction_low": 0.0, "clip_fraction_high": 0.0}


def test_a_ratio_without_a_number_is_counted_and_kept_out_of_the_moments_but_not_hidden() -> None:
    tokens = place_tokens(torch.ones(2, 2), torch.tensor([0, 1]), ("sick", "well"))
    logprobs = torch.tensor([[0.0, math.nan], [0.0, 0.0]])
    got = measure_importance_ratio(tokens, logprobs, torch.zeros(2, 2)).read()
    assert (got["sick"]["importance_ratio/mean"], got["sick"]["importance_ratio/nonfinite"]) == (1.0, 1.0)
    assert math.isnan(got["sick"]["chi2_token"])
    assert (got["well"]["chi2_token"], got["well"]["effective_sample_size"], got[""]["importance_ratio/max"]) == (0.0, 1.0, 1.0)


def test_a_ratio_of_half_a_billion_keeps_its_size() -> None:
    logprobs = torch.tensor([[math.log(5e8), 0.0]], dtype=torch.float64)
    got = measure_importance_ratio(place_tokens(torch.ones(1, 2)), logprobs, torch.zeros(1, 2)).read()
    assert got[""]["importance_ratio/max"] == pytest.approx(5e8)
    assert got[""]["effective_sample_size"] == pytest.approx(0.5)


def test_log_probabilities_of_half_precision_are_subtracted_in_float64() -> None:
    old = torch.tensor([[-1.0]], dtype=torch.bfloat16)
    new = torch.tensor([[-1.0078125]], dtype=torch.bfloat16)
    got = metrics(measure_importance_ratio(place_tokens(torch.ones(1, 1)), new, old), "importance_ratio/mean")
    assert got[""] == pytest.approx(math.exp(-0.0078125), rel=1e-12)


def test_log_probabilities_of_another_shape_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"old_logprobs of shape \(1, 3\)"):
        measure_importance_ratio(place_tokens(torch.ones(1, 2)), torch.zeros(1, 2), torch.zeros(1, 3))
