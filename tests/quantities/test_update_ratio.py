"""The update-to-weight ratio against a full copy of the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gradwatch.quantities import Unavailable, group_parameters
from gradwatch.quantities.update_ratio import UpdateRatio, UpdateRatioReading


def read(ratios: UpdateRatio) -> dict[str, float]:
    got = ratios.after()
    assert isinstance(got, UpdateRatioReading), got
    return got.read()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 5))


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(8, 300)).square().mean().backward()
    optimizer.step()


def true_ratios(model: nn.Module, was: dict[str, torch.Tensor]) -> dict[str, float]:
    found = {}
    for scope in ("", "0", "2"):
        pairs = [(one.detach().double(), was[name].double()) for name, one in model.named_parameters() if name.startswith(scope)]
        moved, weights = (sum(one.square().sum() for one in parts) for parts in ([a - b for a, b in pairs], [b for _, b in pairs]))
        found[scope] = float(moved / weights) ** 0.5
    return found


@pytest.mark.parametrize(("entries", "error"), [(1 << 20, 1e-5), (1 << 12, 0.03)])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_the_ratio_of_a_step_is_that_of_a_full_copy(entries: int, error: float, kind: type[torch.optim.Optimizer]) -> None:
    model = net()
    optimizer = kind(model.parameters(), lr=0.01)
    was = {name: one.detach().clone() for name, one in model.named_parameters()}
    ratios = UpdateRatio(group_parameters(model, depth=1), entries)
    ratios.before()
    stepped(model, optimizer)
    assert read(ratios) == pytest.approx(true_ratios(model, was), rel=error)


def test_no_column_of_a_matrix_is_missed() -> None:
    weight = nn.Parameter(torch.ones(512, 64))
    ratios = UpdateRatio(group_parameters(nn.ParameterDict({"w": weight})), entries=1024)
    ratios.before()
    with torch.no_grad():
        weight[:, 17] += 1
    assert read(ratios)[""] == pytest.approx((1 / 64) ** 0.5, rel=0.05)


def test_a_skipped_step_has_ratio_0() -> None:
    model = net()
    ratios = UpdateRatio(group_parameters(model, depth=1))
    ratios.before()
    assert read(ratios) == {"": 0.0, "0": 0.0, "2": 0.0}


def test_frozen_weights_are_no_part_of_it_and_zero_weights_have_no_ratio() -> None:
    model = net()
    model[0].requires_grad_(False)
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    ratios = UpdateRatio(group_parameters(model, depth=1))
    ratios.before()
    with torch.no_grad():
        model[2].bias += 1
    assert read(ratios) == {}


def test_a_tied_weight_counts_once() -> None:
    head, embedding = nn.Linear(4, 6, bias=False), nn.Embedding(6, 4)
    head.weight = embedding.weight
    ratios = UpdateRatio(group_parameters(nn.Sequential(embedding, head)))
    ratios.before()
    with torch.no_grad():
        embedding.weight *= 1.5
    assert read(ratios)[""] == pytest.approx(0.5)


def test_a_weight_that_becomes_nan_shows_in_the_whole_and_hides_no_other_group() -> None:
    model = net()
    ratios = UpdateRatio(group_parameters(model, depth=1))
    ratios.before()
    with torch.no_grad():
        model[2].bias.fill_(torch.inf)
    got = read(ratios)
    assert got[""] == got["2"] == torch.inf
    assert got["0"] == 0.0


def test_without_a_copy_from_before_the_step_there_is_no_ratio() -> None:
    got = UpdateRatio(group_parameters(net())).after()
    assert isinstance(got, Unavailable)
    assert "before the step" in got.reason


def test_comparing_takes_no_host_sync() -> None:
    ratios = UpdateRatio(group_parameters(net()))
    with profile(activities=[ProfilerActivity.CPU]) as measuring:
        ratios.before()
        ratios.after()
    assert not [one for one in measuring.events() or [] if one.name in ("aten::item", "aten::_local_scalar_dense", "aten::nonzero")]
