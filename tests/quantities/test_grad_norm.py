"""Gradient norms against a slow twin: a float64 loop over every entry."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gradwatch.quantities import GradNorms, Unavailable, group_parameters, measure_grad_norm

FINE = {torch.float64: 1e-6, torch.float32: 1e-6, torch.bfloat16: 1e-6, torch.float16: 1e-6}


def slow_norm(gradients: list[Tensor]) -> float:
    """√Σ gᵢ², entry by entry in float64, of the values as they are stored."""
    return math.sqrt(math.fsum(entry * entry for one in gradients for entry in one.double().flatten().tolist()))


def model_of(gradients: dict[str, list[Tensor | None]]) -> nn.Module:
    groups = {}
    for name, given_ in gradients.items():
        weights = [nn.Parameter(torch.zeros(3) if one is None else torch.zeros_like(one)) for one in given_]
        for weight, one in zip(weights, given_, strict=True):
            weight.grad = one
        groups[name] = nn.ParameterList(weights)
    return nn.ModuleDict(groups)


def read(model: nn.Module, **options: object) -> GradNorms:
    got = measure_grad_norm(group_parameters(model, depth=1), **options)  # type: ignore[arg-type]
    assert not isinstance(got, Unavailable), got
    norms = got.read()
    assert isinstance(norms, GradNorms), norms
    return norms


@st.composite
def gradients(draw: st.DrawFn) -> dict[str, list[Tensor | None]]:
    def one() -> Tensor | None:
        if draw(st.booleans()) and draw(st.booleans()):
            return None
        shape = draw(st.sampled_from([(), (1,), (7,), (3, 5), (2, 1, 4)]))
        scale = draw(st.sampled_from([1e-4, 1.0, 1e3]))
        return (torch.randn(shape, generator=generator) * scale).to(draw(st.sampled_from(list(FINE))))

    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return {f"layer{index}": [one() for _ in range(size)] for index, size in enumerate(sizes)}


@settings(max_examples=60, deadline=None)
@given(gradients())
def test_norms_equal_the_slow_twin_and_groups_without_a_gradient_are_absent(given_: dict[str, list[Tensor | None]]) -> None:
    there = {name: [one for one in group if one is not None] for name, group in given_.items()}
    expected = {name: slow_norm(group) for name, group in there.items() if group}
    got = measure_grad_norm(group_parameters(model_of(given_), depth=1))
    if not expected:
        assert isinstance(got, Unavailable)
        return
    assert not isinstance(got, Unavailable)
    norms = got.read()
    assert isinstance(norms, GradNorms)
    assert norms.groups == pytest.approx(expected, rel=1e-6)
    assert norms.total == pytest.approx(slow_norm([one for group in there.values() for one in group]), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_sum_over_millions_of_entries_keeps_its_precision(dtype: torch.dtype) -> None:
    many = torch.randn(2000, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert read(model_of({"layer": [many]})).total == pytest.approx(float(many.double().norm()), rel=5e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_entry_shows_in_its_group_and_the_total_and_nowhere_else(bad: float) -> None:
    norms = read(model_of({"sick": [torch.tensor([1.0, bad])], "well": [torch.tensor([3.0, 4.0])]}))
    shown = math.nan if math.isnan(bad) else math.inf
    assert norms.groups == pytest.approx({"sick": shown, "well": 5.0}, nan_ok=True)
    assert norms.total == pytest.approx(shown, nan_ok=True)


@pytest.mark.parametrize("scale", [1024.0, torch.tensor(1024.0)])
def test_the_loss_scale_is_divided_out(scale: Tensor | float) -> None:
    scaled = {"layer": [torch.tensor([3.0, 4.0], dtype=torch.float16) * 1024]}
    norms = read(model_of(scaled), loss_scale=scale)
    assert norms == GradNorms(5.0, {"layer": 5.0})


def test_a_gradient_of_zeros_has_norm_0_and_is_not_absent() -> None:
    assert read(model_of({"layer": [torch.zeros(4)], "other": [None]})) == GradNorms(0.0, {"layer": 0.0})


def test_duplicates_in_a_sparse_gradient_are_summed_first() -> None:
    embedding = nn.Embedding(10, 2, sparse=True)
    embedding(torch.tensor([4, 4, 7])).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.is_sparse
    dense = embedding.weight.grad.to_dense()
    assert read(nn.Sequential(embedding)).total == pytest.approx(slow_norm([dense]))


def test_a_tied_weight_counts_once() -> None:
    head, embedding = nn.Linear(4, 6, bias=False), nn.Embedding(6, 4)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    model(torch.tensor([1, 2])).square().sum().backward()
    assert embedding.weight.grad is not None
    assert read(model).as_metrics() == pytest.approx(dict.fromkeys(["", "0"], slow_norm([embedding.weight.grad])))


def test_no_gradient_anywhere_is_unavailable_and_not_0() -> None:
    got = measure_grad_norm(group_parameters(nn.Linear(2, 2)))
    assert isinstance(got, Unavailable)
    assert "backward has not run" in got.reason


def test_measuring_changes_no_bit_of_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    model(torch.randn(4, 8)).square().sum().backward()
    before = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    read(model, loss_scale=3.0)
    assert all(torch.equal(one.grad, was) for one, was in zip(model.parameters(), before, strict=True) if one.grad is not None)


def test_the_whole_record_takes_one_host_sync() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(50)))
    model(torch.randn(2, 4)).sum().backward()
    groups = group_parameters(model)
    with profile(activities=[ProfilerActivity.CPU]) as measuring:
        reading = measure_grad_norm(groups, loss_scale=torch.tensor(2.0))
    assert not isinstance(reading, Unavailable)
    synced = [one for one in measuring.events() or [] if one.name in ("aten::item", "aten::_local_scalar_dense", "aten::nonzero")]
    assert not synced
    assert isinstance(reading.read(), GradNorms)


def test_a_model_of_thousands_of_parameters_makes_a_small_record() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(500)))
    model(torch.ones(1, 2)).sum().backward()
    assert len(list(model.parameters())) == 2000
    metrics = read(model).as_metrics()
    assert len(metrics) <= 65
    assert metrics[""] == pytest.approx(math.hypot(*(norm for scope, norm in metrics.items() if scope)), rel=1e-5)
