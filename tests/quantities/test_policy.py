"""The whole reading of a batch: its keys, its one host sync, and what never reaches it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, poisoned, positions
from torch.profiler import ProfilerActivity, profile

from gradwatch.errors import SettingsError
from gradwatch.metrics import metric, resolve
from gradwatch.quantities.per_role import join_readings
from gradwatch.quantities.policy import PolicyBatch, measure_policy
from gradwatch.quantities.rewards import measure_rewards

SYNCS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::_unique2", "aten::masked_select")
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])


def batch_of(**options: object) -> PolicyBatch:
    logprobs = torch.full((2, 4), -1.0)
    old = logprobs + 0.1
    given_: dict[str, object] = {
        "roles": torch.tensor([0, 1]),
        "names": ("solver", "verifier"),
        "old_logprobs_BT": old,
        "ref_logprobs_BT": old,
        "rollout_logprobs_BT": old,
        "entropies_BT": -logprobs,
        "advantages": torch.tensor([1.0, -1.0]),
        "clip_low": 0.05,
        "clip_high": 0.2,
    }
    return PolicyBatch(logprobs, MASK, **{**given_, **options})  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(batches())
def test_what_lies_outside_the_loss_never_reaches_a_number(batch: PolicyBatch) -> None:
    got = measure_policy(batch).read()
    assert got == measure_policy(poisoned(batch, math.nan)).read() == measure_policy(poisoned(batch, math.inf)).read()
    assert all(math.isfinite(value) for numbers in got.values() for value in numbers.values())
    assert {role: numbers["loss_tokens"] for role, numbers in got.items()} == {
        role: float(len(own)) for role, own in positions(batch).items()
    }


@settings(max_examples=40, deadline=None)
@given(batches())
def test_packed_flat_and_row_by_row_batches_read_the_same(batch: PolicyBatch) -> None:
    rows = torch.arange(len(batch.mask_BT))[:, None].expand(batch.mask_BT.shape)
    packed = replace(batch, sequence_BT=rows if batch.sequence_BT is None else batch.sequence_BT)
    names = [name for name in PolicyBatch.__dataclass_fields__ if name.endswith("_BT")]
    flat = replace(packed, **{name: getattr(packed, name).reshape(-1) for name in names})
    if batch.roles is not None and batch.roles.dim() == 2:
        flat = replace(flat, roles=batch.roles.reshape(-1))
    if batch.advantages is not None and batch.advantages.dim() == 2:
        flat = replace(flat, advantages=batch.advantages.reshape(-1))
    got = measure_policy(packed).read()
    for other in (batch, flat):
        read = measure_policy(other).read()
        assert set(read) == set(got)
        for role, numbers in read.items():
            assert numbers == pytest.approx(got[role], rel=1e-12, abs=1e-12)


def test_every_key_leads_to_a_metric_of_the_catalogue_and_to_its_statistic() -> None:
    for key in measure_policy(batch_of()).read()["solver"]:
        name, _, stat = key.partition("/")
        axes = resolve(key)
        assert (axes.metric, axes.stat, axes.stream, axes.role) == (name, stat, "train", ""), key
        assert metric(name), key


def test_the_numbers_are_by_role() -> None:
    got = measure_policy(batch_of()).read()
    assert {role: numbers["loss_tokens"] for role, numbers in got.items()} == {"solver": 3.0, "verifier": 2.0, "": 5.0}
    assert [got[role]["clip_fraction_low"] for role in ("solver", "verifier", "")] == pytest.approx([0.0, 1.0, 0.4])
    assert got["solver"]["perplexity"] == pytest.approx(math.e)
    assert got[""]["advantage/mean"] == 0.0
    assert got["verifier"]["approx_kl_k1"] == pytest.approx(0.1, rel=1e-6)


def test_what_was_not_given_is_absent() -> None:
    bare = PolicyBatch(torch.zeros(2, 4), MASK)
    assert measure_policy(bare).read() == {"": {"loss_tokens": 5.0, "perplexity": 1.0}}
    assert "clip_fraction" not in measure_policy(batch_of(advantages=None)).read()["solver"]


def test_a_batch_that_is_masked_out_says_nothing() -> None:
    assert measure_policy(PolicyBatch(torch.zeros(2, 4), torch.zeros(2, 4))).read() == {}
    assert measure_policy(PolicyBatch(torch.zeros(0, 4), torch.zeros(0, 4))).read() == {}


def test_the_mismatch_is_measured_from_the_weights_that_sampled() -> None:
    got = measure_policy(batch_of()).read()["solver"]
    assert got["logp_difference/max"] == 0.0
    assert measure_policy(batch_of(old_logprobs_BT=None)).read()["solver"]["logp_difference/max"] == pytest.approx(0.1, rel=1e-6)


def test_the_whole_record_takes_one_host_sync() -> None:
    """One copy to the host in `read`, and nothing before it that asks the device for a number."""
    batch = batch_of()
    with profile(activities=[ProfilerActivity.CPU]) as measuring:
        reading = measure_policy(batch)
        rewards = measure_rewards(torch.tensor([1.0, 0.0]), batch.roles, batch.names)
        joined = join_readings(reading, rewards)
    assert not [one.name for one in measuring.events() or [] if one.name in SYNCS]
    assert joined.read()["solver"]["reward/mean"] == 1.0


def test_the_graph_of_the_loss_is_neither_grown_nor_held() -> None:
    leaf = torch.zeros(2, 4, requires_grad=True)
    reading = measure_policy(batch_of(old_logprobs_BT=leaf * 2))
    assert not reading.values_VR.requires_grad


def test_a_shape_that_does_not_fit_is_refused_with_a_sentence() -> None:
    with pytest.raises(SettingsError, match="ref_logprobs of shape"):
        measure_policy(batch_of(ref_logprobs_BT=torch.zeros(2, 5)))
    with pytest.raises(SettingsError, match="advantages of shape"):
        measure_policy(batch_of(advantages=torch.zeros(3)))
