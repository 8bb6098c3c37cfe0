"""Perplexity against a loop over sequences."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import Position, batches, metrics, positions, tokens_of, values

from gradwatch.quantities.perplexity import measure_perplexity
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import place_tokens


def slow_perplexity(own: list[Position], logprobs: list[float]) -> float:
    by_sequence: defaultdict[int, list[float]] = defaultdict(list)
    for one in own:
        by_sequence[one.sequence].append(logprobs[one.at])
    return math.fsum(math.exp(-math.fsum(part) / len(part)) for part in by_sequence.values()) / len(by_sequence)


@settings(max_examples=100, deadline=None)
@given(batches())
def test_perplexity_is_the_mean_over_sequences(batch: PolicyBatch) -> None:
    logprobs = values(batch.logprobs_BT)
    expected = {role: slow_perplexity(own, logprobs) for role, own in positions(batch).items()}
    assert metrics(measure_perplexity(tokens_of(batch), batch.logprobs_BT), "perplexity") == pytest.approx(expected, rel=1e-9)


def test_a_long_sequence_does_not_outweigh_a_short_one() -> None:
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]])
    logprobs = torch.where(mask.bool(), torch.tensor([[-math.log(9.0)], [-math.log(3.0)]]), math.nan)
    assert metrics(measure_perplexity(place_tokens(mask), logprobs), "perplexity") == pytest.approx({"": 6.0})


@pytest.mark.parametrize(("bad", "shown"), [(math.nan, math.nan), (-math.inf, math.inf)])
def test_a_token_without_a_number_shows_in_its_role_and_overall_and_nowhere_else(bad: float, shown: float) -> None:
    tokens = place_tokens(torch.ones(2, 2), torch.tensor([0, 1]), ("sick", "well"))
    got = metrics(measure_perplexity(tokens, torch.tensor([[0.0, bad], [0.0, 0.0]])), "perplexity")
    assert got == pytest.approx({"sick": shown, "well": 1.0, "": shown}, nan_ok=True)
