"""The locator against what was injected: every module of a small transformer, in forward and in backward."""

from __future__ import annotations

import copy
import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from quantities.locator_ranks import spoil
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import CausalLMOutput

from gradwatch.quantities import group_parameters, measure_grad_norm
from gradwatch.quantities.grad_norm import GradNormReading
from gradwatch.quantities.located import Located
from gradwatch.quantities.nonfinite_locator import NonfiniteLocator

WIDE = 64  # 4 sequences of 32 tokens of it are more than is read whole


class Block(nn.Module):
    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDE)
        self.up = nn.Linear(WIDE, 2 * WIDE)
        self.act = nn.ReLU(inplace=inplace)
        self.down = nn.Linear(2 * WIDE, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Tiny(nn.Module):
    def __init__(self, recompute: bool | None = None, inplace: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(16, WIDE)
        self.layers = nn.ModuleList(Block(inplace) for _ in range(3))
        self.head = nn.Linear(WIDE, 16)
        self.recompute = recompute

    def forward(self, ids: Tensor) -> CausalLMOutput:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x) if self.recompute is None else checkpoint(layer, x, use_reentrant=self.recompute)
        logits = self.head(x)
        return CausalLMOutput(loss=nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()), logits=logits)


IDS = torch.arange(128).view(4, 32) % 16
PARTS = ["embed", "layers.0.norm", "layers.1.up", "layers.1.down", "layers.1", "layers.2.norm", "head"]


def spoil_one(tensor: Tensor) -> Tensor:
    """NaN in one entry, not the first of its row."""
    spoilt = tensor.clone()
    spoilt[1, 3, 5] = torch.nan
    return spoilt


def inject(module: nn.Module, kind: str, wrong: Callable[[Tensor], Tensor]) -> None:
    """Make the module's output, or the gradient that it is given, wrong; before the locator looks."""

    def hook(_: nn.Module, __: object, output: Tensor) -> Tensor | None:
        if kind == "forward":
            return wrong(output)
        if output.requires_grad:
            output.register_hook(wrong)
        return None

    module.register_forward_hook(hook)


def find(model: nn.Module, whole: bool = False, passes: int = 1) -> Located:
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm(whole)
    for _ in range(passes):
        model(IDS).loss.backward()
    found = locator.reading().read()
    assert not locator.failure
    locator.detach()
    return found


WAYS = [None, False, True]


@pytest.mark.parametrize("wrong", [spoil, spoil_one])
@pytest.mark.parametrize("recompute", WAYS, ids=["kept", "checkpoint", "reentrant"])
@pytest.mark.parametrize("part", PARTS)
def test_the_module_whose_output_is_nan_is_named_in_that_step(part: str, recompute: bool | None, wrong: Any) -> None:
    model = Tiny(recompute)
    inject(model.get_submodule(part), "forward", wrong)
    assert find(model).forward == part


@pytest.mark.parametrize("wrong", [spoil, spoil_one])
@pytest.mark.parametrize("recompute", WAYS, ids=["kept", "checkpoint", "reentrant"])
@pytest.mark.parametrize("part", ["layers.0.norm", "layers.1.up", "layers.1.down", "layers.2.norm", "head"])
def test_the_module_that_was_given_a_nan_gradient_is_named_in_that_step(part: str, recompute: bool | None, wrong: Any) -> None:
    model = Tiny(recompute)
    inject(model.get_submodule(part), "backward", wrong)
    found = find(model)
    assert found.forward is None
    assert found.backward == part
    assert f"{part}.weight" in found.gradient
    assert "head.weight" not in found.gradient or part == "head"


@pytest.mark.parametrize("kind", ["forward", "backward"])
@pytest.mark.parametrize("part", ["embed", "layers.1.act", "layers.1", "head"])
def test_armed_for_everything_it_names_modules_without_parameters_too(part: str, kind: str) -> None:
    model = Tiny()
    inject(model.get_submodule(part), kind, spoil_one)
    found = find(model, whole=True)
    assert (found.forward if kind == "forward" else found.backward) == part


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_an_infinity_of_either_sign_is_not_finite(bad: float) -> None:
    model = Tiny()
    inject(model.layers[1].up, "forward", lambda output: output.masked_fill(output == output.max(), bad))
    assert find(model, whole=True).forward == "layers.1.up"


def test_a_gradient_of_one_parameter_and_a_weight_are_named() -> None:
    model = Tiny()
    model.layers[1].up.bias.register_hook(lambda gradient: gradient * torch.inf)
    assert find(model) == Located(gradient=("layers.1.up.bias",))
    with torch.no_grad():
        model.layers[0].down.bias[3] = torch.nan
    found = find(model)
    assert found.weight == ("layers.0.down.bias",)
    assert found.forward == "layers.0.down"
    assert "the weight 'layers.0.down.bias' was not finite before the step" in found.sentence()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("whole", [False, True])
def test_large_values_whose_sum_and_squares_overflow_are_finite(dtype: torch.dtype, whole: bool) -> None:
    large = 3e4 if dtype == torch.float16 else 3e38
    model = nn.Sequential(nn.Linear(8, 8192, bias=False), nn.Linear(8192, 1, bias=False)).to(dtype)
    with torch.no_grad():
        model[0].weight.zero_().diagonal().fill_(large)
        model[1].weight.zero_()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm(whole)
    model(torch.ones(4, 8, dtype=dtype)).sum().backward()
    assert model[1].weight.grad is not None
    model[1].weight.grad.fill_(large)
    assert not locator.reading().read()


def test_everything_finite_names_nothing_and_says_nothing() -> None:
    found = find(Tiny())
    assert found == Located()
    assert not found
    assert found.sentence() == ""


def test_of_accumulated_passes_the_one_that_was_wrong_is_found_after_the_last() -> None:
    model, calls = Tiny(), iter([False, True, False])
    model.layers[2].up.register_forward_hook(lambda _, __, output: spoil(output) if next(calls) else output)
    assert find(model, passes=3).forward == "layers.2.up"


def test_in_place_operations_do_not_blame_the_module_before() -> None:
    model = Tiny(inplace=True)
    inject(model.layers[1].act, "forward", spoil_one)
    assert find(model).forward == "layers.1.act"


def test_half_precision_under_autocast_is_looked_at_alike() -> None:
    model = Tiny()
    inject(model.layers[1].down, "forward", spoil)
    with torch.autocast("cpu", torch.bfloat16):
        assert find(model).forward == "layers.1.down"


class Parts(nn.Module):
    """Outputs of every shape in which torch returns them."""

    def __init__(self, shape: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.shape = shape

    def forward(self, x: Tensor) -> object:
        y = self.linear(x)
        return self.shape(y * 2, y * torch.inf)


SHAPES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "tuple": lambda good, bad: (good, None, bad),
    "dict": lambda good, bad: {"first": good, "second": [bad]},
    "model output": lambda good, bad: CausalLMOutput(loss=good.sum(), logits=bad),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_in_tuples_dicts_and_model_outputs_are_seen(shape: str) -> None:
    model = nn.Sequential(Parts(SHAPES[shape]))
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm()
    model(torch.ones(2, 4))
    assert locator.reading().read().forward == "0"


def test_outputs_that_hold_no_floating_values_are_passed_over() -> None:
    model = nn.Sequential(Parts(lambda good, _: (good.argmax(), "text", None, good.new_zeros(0), good)))
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm(whole=True)
    model(torch.ones(2, 4))
    assert not locator.reading().read()
    assert not locator.failure


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("recompute", WAYS, ids=["kept", "checkpoint", "reentrant"])
def test_no_gradient_bit_changes(recompute: bool | None, whole: bool) -> None:
    plain, watched = Tiny(recompute), Tiny(recompute)
    locator = NonfiniteLocator(watched, group_parameters(watched).parameters)
    locator.arm(whole)
    for model in (plain, watched):
        model(IDS).loss.backward()
    locator.reading()
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_no_activation_is_kept_alive() -> None:
    model, kept = Tiny(), []
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    for one in model.modules():
        one.register_forward_hook(lambda _, __, output: kept.append(weakref.ref(output)) if isinstance(output, Tensor) else None)
    locator.arm(whole=True)
    model(IDS).loss.backward()
    gc.collect()
    assert kept
    assert not any(one() is not None for one in kept)


def test_passes_without_gradients_and_passes_while_disarmed_are_left_alone() -> None:
    model = Tiny()
    inject(model.head, "forward", spoil)
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    model(IDS)
    locator.arm()
    with torch.no_grad():
        model(IDS)
    with torch.inference_mode():
        model(IDS)
    assert locator.reading().read().forward is None
    model(IDS)
    assert locator.reading().read().forward == "head"
    locator.disarm()
    assert locator.reading().read().forward is None


def test_detached_it_leaves_no_hook() -> None:
    model = Tiny()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.detach()
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


def test_a_parameter_that_a_module_returns_gathers_no_hooks() -> None:
    class Returned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self) -> Tensor:
            return self.weight

    model = Returned()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm(whole=True)
    for _ in range(3):
        model().sum().backward()
    assert not model.weight._backward_hooks


@pytest.mark.parametrize("after", [True, False])
def test_of_compiled_code_only_parameters_tell_and_that_is_said(after: bool) -> None:
    torch._dynamo.reset()
    model = Tiny()
    inject(model.layers[1].up, "backward", spoil)
    if after:
        compiled = torch.compile(model, backend="eager")
        locator = NonfiniteLocator(compiled, group_parameters(compiled).parameters)
    else:
        locator = NonfiniteLocator(model, group_parameters(model).parameters)
        compiled = torch.compile(model, backend="eager", fullgraph=False)
    locator.arm()
    compiled(IDS).loss.backward()
    found = locator.reading().read()
    assert "layers.1.up.weight" in found.gradient
    assert "layers.2.norm.weight" not in found.gradient
    assert "layers.1.up" in found.unseen
    assert "only parameters are looked at in" in found.sentence()


def test_hooks_that_were_there_before_break_no_graph() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(torch.ones(2, 4)).sum().backward()
    assert not locator.reading().read()


def test_names_carry_no_wrappers() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Tiny()

        def forward(self, ids: Tensor) -> CausalLMOutput:
            return self.module(ids)

    model = Wrapped()
    inject(model.module.layers[1].up, "forward", spoil)
    assert find(model).forward == "layers.1.up"


def test_on_the_cpu_a_finite_norm_saves_reading_the_parameters() -> None:
    model = Tiny()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    model(IDS).loss.backward()
    norms = measure_grad_norm(group_parameters(model))
    assert isinstance(norms, GradNormReading)
    with profile(activities=[ProfilerActivity.CPU]) as reading:
        locator.reading(norms.total)
    assert not [one for one in reading.events() or [] if "norm" in one.name]


def test_a_norm_that_overflows_accuses_no_parameter() -> None:
    model = Tiny()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    model(IDS).loss.backward()
    assert model.head.weight.grad is not None
    model.head.weight.grad.fill_(1e30)
    norms = measure_grad_norm(group_parameters(model))
    assert isinstance(norms, GradNormReading)
    assert norms.total.isinf()
    assert not locator.reading(norms.total).read()


def test_what_torch_refuses_ends_the_search_and_not_the_step() -> None:
    model = nn.Linear(4, 4)
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm()
    torch.func.vmap(model)(torch.ones(3, 2, 4))
    assert not locator.reading().read()


def test_copies_of_a_watched_model_are_not_watched() -> None:
    model = Tiny()
    locator = NonfiniteLocator(model, group_parameters(model).parameters)
    locator.arm()
    twin = copy.deepcopy(model)
    inject(twin.head, "forward", spoil)
    twin(IDS)
    assert not locator.reading().read()
