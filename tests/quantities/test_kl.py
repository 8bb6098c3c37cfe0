"""KL estimates against plain Python, and against the divergence that they estimate."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, positions, tokens_of, values

from gradwatch.quantities.kl import measure_approx_kl, measure_kl
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import place_tokens


@settings(max_examples=80, deadline=None)
@given(batches())
def test_both_equal_the_slow_twin(batch: PolicyBatch) -> None:
    assert batch.old_logprobs_BT is not None
    assert batch.ref_logprobs_BT is not None
    tokens = tokens_of(batch)
    reference = measure_kl(tokens, batch.logprobs_BT, batch.ref_logprobs_BT).read()
    update = measure_approx_kl(tokens, batch.logprobs_BT, batch.old_logprobs_BT).read()
    new, old, ref = values(batch.logprobs_BT), values(batch.old_logprobs_BT), values(batch.ref_logprobs_BT)
    for role, own in positions(batch).items():
        k3 = [math.exp(ref[one.at] - new[one.at]) - (ref[one.at] - new[one.at]) - 1 for one in own]
        k1 = math.fsum(new[one.at] - ref[one.at] for one in own) / len(own)
        expected = {"kl": math.fsum(k3) / len(k3), "kl/max": max(k3), "kl_k1": k1}
        assert reference[role] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        moved = [math.exp(new[one.at] - old[one.at]) - (new[one.at] - old[one.at]) - 1 for one in own]
        turned = math.fsum(old[one.at] - new[one.at] for one in own) / len(own)
        expected = {"approx_kl": math.fsum(moved) / len(own), "approx_kl_k1": turned}
        assert update[role] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_both_estimates_of_many_samples_are_near_the_divergence() -> None:
    generator = torch.Generator().manual_seed(0)
    policy, reference = (torch.randn(20, generator=generator).log_softmax(0) for _ in range(2))
    samples = torch.multinomial(policy.exp(), 200_000, replacement=True, generator=generator)[None]
    got = measure_kl(place_tokens(torch.ones_like(samples)), policy[samples], reference[samples]).read()[""]
    truth = float((policy.exp() * (policy - reference)).sum())
    assert got["kl"] == pytest.approx(truth, rel=0.02)
    assert got["kl_k1"] == pytest.approx(truth, rel=0.02)


def test_policies_that_are_all_but_equal_have_a_kl_of_half_the_square_and_not_of_rounding() -> None:
    got = measure_kl(place_tokens(torch.ones(1, 1)), torch.full((1, 1), -1e-9, dtype=torch.float64), torch.zeros(1, 1)).read()
    assert got[""]["kl"] == pytest.approx(5e-19, rel=1e-6, abs=0)


@pytest.mark.parametrize(
    ("new", "ref", "shown"),
    [(-math.inf, 0.0, math.inf), (0.0, -math.inf, math.inf), (math.nan, 0.0, math.nan), (-math.inf, -math.inf, math.nan)],
)
def test_a_token_without_a_number_shows(new: float, ref: float, shown: float) -> None:
    tokens = place_tokens(torch.ones(2, 1), torch.tensor([0, 1]), ("sick", "well"))
    got = measure_kl(tokens, torch.tensor([[new], [0.0]]), torch.tensor([[ref], [0.0]])).read()
    assert [got["sick"]["kl"], got["sick"]["kl/max"], got[""]["kl"]] == pytest.approx([shown] * 3, nan_ok=True)
    assert got["well"] == {"kl": 0.0, "kl/max": 0.0, "kl_k1": 0.0}
