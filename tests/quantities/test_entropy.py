"""Entropy in chunks against −Σ p log p in float64, and what it costs in memory."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities.role_batches import batches, metrics, positions, tokens_of, values
from torch.profiler import ProfilerActivity, profile

from gradwatch.quantities.entropy import entropy_of_logits, measure_entropy
from gradwatch.quantities.policy import PolicyBatch


def slow_entropy(row: list[float], temperature: float) -> float:
    top = max(row)
    weights = [math.exp((one - top) / temperature) for one in row]
    chances = [one / math.fsum(weights) for one in weights]
    return -math.fsum(one * math.log(one) for one in chances if one)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 7),
    st.sampled_from([0.5, 1.0, 1.5]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_entropy_equals_the_slow_twin(
    shape: list[int], vocabulary: int, temperature: float, rows: int | None, dtype: torch.dtype
) -> None:
    logits = (4 * torch.randn(*shape, vocabulary, generator=torch.Generator().manual_seed(sum(shape)))).to(dtype)
    got = entropy_of_logits(logits, temperature, rows)
    assert got.shape == tuple(shape)
    expected = [slow_entropy(row, temperature) for row in logits.double().reshape(-1, vocabulary).tolist()]
    assert got.reshape(-1).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_slice_is_read_in_place_and_in_order() -> None:
    logits = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(entropy_of_logits(logits[:, :-1], rows=2), entropy_of_logits(logits)[:, :-1])


def test_a_token_that_cannot_be_sampled_adds_nothing() -> None:
    assert entropy_of_logits(torch.tensor([[0.0, -math.inf, 0.0]])).tolist() == pytest.approx([math.log(2)])


def test_an_empty_batch_has_no_entropies() -> None:
    assert entropy_of_logits(torch.zeros(2, 0, 5)).shape == (2, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_logit_without_a_number_makes_its_own_row_nan(bad: float) -> None:
    got = entropy_of_logits(torch.tensor([[0.0, bad], [0.0, 0.0]]))
    assert got.tolist() == pytest.approx([math.nan, math.log(2)], nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_second_tensor_of_the_logits_size_is_made(dtype: torch.dtype) -> None:
    logits = torch.randn(4, 257, 1000).to(dtype)[:, :-1]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measuring:
        entropy_of_logits(logits, temperature=0.7, rows=8)
    largest = max(event.self_cpu_memory_usage for event in measuring.events() or [])
    assert largest <= 8 * 1000 * 4


@settings(max_examples=40, deadline=None)
@given(batches())
def test_the_entropy_of_a_role_is_the_mean_over_its_tokens(batch: PolicyBatch) -> None:
    assert batch.entropies_BT is not None
    each = values(batch.entropies_BT)
    expected = {role: math.fsum(each[one.at] for one in own) / len(own) for role, own in positions(batch).items()}
    assert metrics(measure_entropy(tokens_of(batch), batch.entropies_BT), "entropy") == pytest.approx(expected, rel=1e-9)
