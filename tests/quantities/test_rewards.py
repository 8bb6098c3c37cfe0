"""Rewards, components and advantages by role."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, metrics, positions, tokens_of, values

from gradwatch.errors import SettingsError
from gradwatch.metrics import resolve
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.rewards import measure_advantages, measure_reward_components, measure_rewards

ROLES, NAMES = torch.tensor([0, 0, 1, -1]), ("solver", "verifier")


def test_a_missing_reward_is_counted_and_kept_out_of_the_moments() -> None:
    got = measure_rewards([1.0, None, 0.5, math.inf], ROLES, NAMES).read()
    assert (got["solver"]["reward/mean"], got["solver"]["reward/count"], got["solver"]["reward/nonfinite"]) == (1.0, 2.0, 1.0)
    assert (got[""]["reward/mean"], got[""]["reward/max"], got[""]["reward/nonfinite"]) == (0.75, 1.0, 2.0)


def test_a_role_of_which_every_reward_is_missing_has_nan_and_not_0() -> None:
    got = measure_rewards(torch.tensor([1.0, 2.0, math.nan, 3.0]), ROLES, NAMES).read()
    assert math.isnan(got["verifier"]["reward/mean"])
    assert math.isnan(got["verifier"]["reward/min"])
    assert got["verifier"]["reward/nonfinite"] == 1.0


def test_components_are_read_back_into_their_scope() -> None:
    got = measure_reward_components({"length": [1.0, 2.0, 3.0, 4.0], "a/b": [0.0] * 4}, ROLES, NAMES).read()["solver"]
    assert got["reward_component/length/mean"] == 1.5
    axes = {(*resolve(key)[:3], resolve(key).scope) for key in got}
    stats = ("mean", "std", "min", "max", "count", "nonfinite")
    assert axes == {("reward_component", "train", stat, scope) for stat in stats for scope in ("length", "a.b")}


@settings(max_examples=60, deadline=None)
@given(batches())
def test_advantages_are_those_of_sequences_in_the_loss_or_of_tokens(batch: PolicyBatch) -> None:
    assert batch.advantages is not None
    got = metrics(measure_advantages(tokens_of(batch), batch.advantages), "advantage/std")
    each = values(batch.advantages)
    expected = {}
    for role, own in positions(batch).items():
        places = [one.at for one in own] if batch.advantages.dim() == 2 else {one.sequence for one in own}
        expected[role] = statistics.pstdev([each[place] for place in places])
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_rewards_by_token_are_refused_with_a_sentence() -> None:
    with pytest.raises(SettingsError, match="one number for each sequence"):
        measure_rewards(torch.zeros(2, 3))


def test_no_components_are_refused_with_a_sentence() -> None:
    with pytest.raises(SettingsError, match="give at least one"):
        measure_reward_components({})
