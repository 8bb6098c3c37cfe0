"""Groups against plain Python."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.errors import SettingsError
from gradwatch.metrics import metric, resolve
from gradwatch.quantities.reward_groups import SpoiltGroup, measure_groups

NAMES = ("solver", "verifier")
REWARDS = st.one_of(st.sampled_from([0.0, 1.0, 0.99, 1.0, 0.0]), st.floats(-2, 2), st.just(math.nan))
ROWS = st.lists(st.tuples(REWARDS, st.integers(-3, 3), st.integers(-1, 1), st.integers(0, 1)), max_size=16)
Row = tuple[float, int, int, int]


def slow_groups(rows: list[Row]) -> dict[str, float]:
    rewards: defaultdict[int, list[float]] = defaultdict(list)
    prompts: defaultdict[int, set[int]] = defaultdict(set)
    for reward, group, _, prompt in rows:
        rewards[group].append(reward)
        prompts[group].add(prompt)
    sizes = [len(own) for own in rewards.values()]
    judged = [own for own in rewards.values() if len(own) > 1 and not any(map(math.isnan, own))]
    found = {
        "groups": len(sizes),
        "group_size/mean": statistics.fmean(sizes),
        "group_size/min": min(sizes),
        "group_size/max": max(sizes),
        "frac_groups_of_one": sizes.count(1) / len(sizes),
        "groups_excluded": sum(any(map(math.isnan, own)) for own in rewards.values()),
        "group_prompts/mean": statistics.fmean(len(own) for own in prompts.values()),
        "group_prompts/max": max(len(own) for own in prompts.values()),
    }
    if judged:
        stds = [statistics.stdev(own) if len(set(own)) > 1 else 0.0 for own in judged]
        found |= {
            "frac_reward_zero_std": sum(len(set(own)) == 1 for own in judged) / len(judged),
            "group_reward_std/mean": statistics.fmean(stds),
            "group_reward_std/min": min(stds),
            "frac_groups_all_right": sum(min(own) >= 1 for own in judged) / len(judged),
            "frac_groups_all_wrong": sum(max(own) <= 0 for own in judged) / len(judged),
        }
    return {key: float(value) for key, value in found.items()}


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_groups_equal_the_slow_twin(rows: list[Row]) -> None:
    rewards = torch.tensor([row[0] for row in rows], dtype=torch.float64)
    groups, roles, prompts = (torch.tensor([row[at] for row in rows], dtype=torch.int64) for at in (1, 2, 3))
    got = measure_groups(rewards, groups, roles, NAMES, prompts).read().numbers
    owned = {name: [row for row in rows if row[2] == at] for at, name in enumerate(NAMES)} | {"": rows}
    assert set(got) == {name for name, own in owned.items() if own}
    for name, numbers in got.items():
        assert numbers == pytest.approx(slow_groups(owned[name]), rel=1e-9, abs=1e-12)
        assert all(metric(resolve(key).metric) for key in numbers)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_constant_group_is_constant_whatever_its_float_deviation(dtype: torch.dtype) -> None:
    got = measure_groups(torch.full((13,), 0.99, dtype=dtype), torch.zeros(13, dtype=torch.int64)).read().numbers[""]
    assert (got["frac_reward_zero_std"], got["group_reward_std/mean"]) == (1.0, 0.0)


def test_a_group_with_a_missing_reward_is_left_out_and_named_with_its_role() -> None:
    groups = ["prompt-7", "prompt-7", "prompt-8", "prompt-8", "prompt-9"]
    got = measure_groups([None, 1.0, 0.0, 1.0, math.inf], groups, torch.tensor([0, 0, 1, 1, -1]), NAMES).read()
    assert got.spoilt == (SpoiltGroup("prompt-7", "solver", 2, 1), SpoiltGroup("prompt-9", "", 1, 1))
    assert "frac_reward_zero_std" not in got.numbers["solver"]
    assert got.numbers[""]["group_reward_std/mean"] == pytest.approx(statistics.stdev([0, 1]))


def test_rollouts_of_two_prompts_in_one_group_show() -> None:
    got = measure_groups([0.0, 1.0, 1.0, 0.0], [1, 1, 2, 2], prompts=["a", "a", "a", "b"]).read().numbers[""]
    assert (got["group_prompts/mean"], got["group_prompts/max"]) == (1.5, 2.0)


def test_without_prompts_nothing_is_said_of_them() -> None:
    assert not any(key.startswith("group_prompts") for key in measure_groups([0.0], [1]).read().numbers[""])


def test_a_lone_rollout_is_no_group_without_signal_but_one_without_a_baseline() -> None:
    got = measure_groups([0.0, 1.0, 1.0], [1, 2, 2]).read().numbers[""]
    assert (got["frac_groups_of_one"], got["frac_reward_zero_std"], got["frac_groups_all_wrong"]) == (0.5, 1.0, 0.0)


def test_what_counts_as_right_is_the_callers_to_say() -> None:
    got = measure_groups([0.6, 0.7], [1, 1], right=0.5).read().numbers[""]
    assert (got["frac_groups_all_right"], got["frac_groups_all_wrong"]) == (1.0, 0.0)


def test_groups_of_another_shape_are_refused_with_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"groups of shape \(1,\)"):
        measure_groups([0.0, 1.0], [1])
    with pytest.raises(SettingsError, match="prompts of shape"):
        measure_groups([0.0, 1.0], [1, 1], prompts=torch.zeros(2))
