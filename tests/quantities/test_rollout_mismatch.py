"""The gap between training and rollout against plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, positions, tokens_of, values

from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import place_tokens
from gradwatch.quantities.rollout_mismatch import measure_rollout_mismatch


@settings(max_examples=60, deadline=None)
@given(batches())
def test_it_equals_the_slow_twin(batch: PolicyBatch) -> None:
    assert batch.rollout_logprobs_BT is not None
    got = measure_rollout_mismatch(tokens_of(batch), batch.logprobs_BT, batch.rollout_logprobs_BT).read()
    train, rollout = values(batch.logprobs_BT), values(batch.rollout_logprobs_BT)
    for role, own in positions(batch).items():
        gaps = [train[one.at] - rollout[one.at] for one in own]
        expected = {
            "logp_difference/mean": math.fsum(map(abs, gaps)) / len(gaps),
            "logp_difference/max": max(map(abs, gaps)),
            "logp_difference/nonfinite": 0.0,
            "rollout_kl": math.fsum(math.exp(gap) - gap - 1 for gap in gaps) / len(gaps),
            "rollout_kl_k1": -math.fsum(gaps) / len(gaps),
        }
        assert got[role] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_token_that_the_engine_gave_no_probability_is_counted_and_shows() -> None:
    got = measure_rollout_mismatch(place_tokens(torch.ones(1, 2)), torch.zeros(1, 2), torch.tensor([[-1.0, -math.inf]])).read()
    assert (got[""]["logp_difference/max"], got[""]["logp_difference/nonfinite"], got[""]["rollout_kl"]) == (1.0, 1.0, math.inf)
