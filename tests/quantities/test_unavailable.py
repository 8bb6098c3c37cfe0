"""Gradients that are not the whole truth here are said to be unavailable, with the reason, and never read as 0."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradwatch.quantities import Unavailable, group_parameters, measure_grad_norm


def reason(model: nn.Module, **options: list[str]) -> str:
    got = measure_grad_norm(group_parameters(model, **options))  # type: ignore[arg-type]
    assert isinstance(got, Unavailable)
    return got.reason


@pytest.mark.parametrize("mark", ["ds_id", "ds_tensor", "ds_status", "_hp_mapping"])
@pytest.mark.parametrize("gradient", [None, torch.ones(2, 2)])
def test_deepspeed_zero_is_recognised_by_what_it_writes_on_parameters(mark: str, gradient: torch.Tensor | None) -> None:
    """A stub: DeepSpeed is not installed here.

    The attributes are those that its sources set: `ds_id`, `ds_tensor` and `ds_status` (partition_parameters.py, stage 3) and
    `_hp_mapping` (tensor_fragment.py, stages 1 and 2), which may be None. A gradient may be there, of this process's data alone.
    """
    model = nn.Linear(2, 2, bias=False)
    model.weight.grad = gradient
    setattr(model.weight, mark, None)
    assert "get_global_grad_norm" in reason(model)


def test_one_partitioned_parameter_makes_the_whole_norm_unavailable_unless_it_is_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    model[1].weight.ds_id = 7
    assert "'1.weight'" in reason(model)
    assert not isinstance(measure_grad_norm(group_parameters(model, exclude=["1.weight"])), Unavailable)


def test_a_parameter_without_weights_is_unavailable() -> None:
    assert "meta device" in reason(nn.Linear(2, 2, device="meta"))


def test_an_empty_partition_is_unavailable() -> None:
    model = nn.ParameterDict({"kept_elsewhere": nn.Parameter(torch.empty(0)), "here": nn.Parameter(torch.ones(1))})
    model["here"].grad = torch.ones(1)
    assert "holds no value on this process" in reason(model)


def test_frozen_parameters_without_weights_do_no_harm() -> None:
    model = nn.Sequential(nn.Linear(2, 2, device="meta").requires_grad_(False), nn.Linear(2, 2))
    model[1](torch.ones(1, 2)).sum().backward()
    assert not isinstance(measure_grad_norm(group_parameters(model)), Unavailable)
