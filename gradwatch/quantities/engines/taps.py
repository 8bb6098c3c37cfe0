"""Taps: identities on a module's output that measure, in the backward pass, what each speaker adds to its parameters' gradients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext as untimed
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from gradwatch.quantities.engines import operators
from gradwatch.quantities.engines.clock import CLOCK
from gradwatch.quantities.engines.operators import Facts, Plan
from gradwatch.quantities.engines.scratch import scratch
from gradwatch.quantities.engines.speaker_gradients import Kept
from gradwatch.quantities.engines.stores import FAILURES
from gradwatch.quantities.engines.weight_uses import Kind, inverse_rms
from gradwatch.quantities.own_hook import REFUSALS

T = TypeVar("T")


class Recipe(NamedTuple):
    """What a module does: see `WeightUse`; its weight's facts, and where its bias is counted.

    `padding` is the token whose row of an embedding has no gradient (-1: none). An `eps` below 0 is that of the input's dtype.
    """

    kind: Kind
    facts: Facts
    bias_slot: int
    sizes: tuple[int, int]
    eps: float = 0.0
    padding: int = -1


class Leaves(NamedTuple):
    """The leaves that take what is measured: the weight's own, the sketch, the bias's; None for what is not measured."""

    own: Tensor | None = None
    sketch: Tensor | None = None
    bias: Tensor | None = None


class Tap(torch.autograd.Function):
    """The output y of a module, whose backward also gives the leaves their gradients.

    The input goes through `save_for_backward`, so that activation checkpointing drops and recomputes it as it does the module's
    own. The output shares its values with y, which nothing else uses, and is no view of it: in-place operations on it work as on y,
    without the copies of the gradient that a view costs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        x: Tensor,
        own: Tensor | None,
        sketch: Tensor | None,
        bias: Tensor | None,
        order: Tensor | None,
        bounds: Tensor | None,
        wants: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        recipe: Recipe,
    ) -> Tensor:
        """Remember x, also where there is no plan and nothing is measured: a recomputation saves what the pass before saved."""
        if torch.compiler.is_compiling():
            ctx.save_for_backward(x, order, bounds, wants, a, b)
        else:
            ctx.save_for_backward(x)
            ctx.plan = (order, bounds, wants, a, b)
        ctx.recipe, ctx.is_off = recipe, order is None
        ctx.has_weight, ctx.has_bias = own is not None, bias is not None
        return y.data

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        """Measure; the gradient goes through as it is."""
        x, *plan = ctx.saved_tensors
        leaves = Leaves()
        if not ctx.is_off:
            with torch.no_grad(), untimed() if torch.compiler.is_compiling() else CLOCK:
                plan = Plan(*(plan or ctx.plan))
                measuring = partial(measure, gy.detach(), x.detach(), plan, ctx.recipe, weight=ctx.has_weight, bias=ctx.has_bias)
                leaves = attempt(measuring, ctx.recipe, leaves)
        return gy, None, *leaves, *(None,) * 6


def attempt(measuring: Callable[[], T], recipe: Recipe, otherwise: T) -> T:
    """What is measured, of which nothing but the reading may fail, above all for want of memory."""
    if torch.compiler.is_compiling():
        return measuring()
    try:
        return measuring()
    except REFUSALS as error:
        FAILURES.update({recipe.facts.slot: str(error), recipe.bias_slot: str(error)})
        return otherwise


def measure(gy: Tensor, x: Tensor, plan: Plan, recipe: Recipe, *, weight: bool, bias: bool) -> Leaves:
    """The gradients of the leaves, from the gradient of the output and the input of a module."""
    gy_MD = gy.reshape(-1, gy.shape[-1])
    kept = _MEASURES[recipe.kind](gy_MD, x, plan, recipe) if weight else Kept()
    shift = operators.scale(gy_MD, None, plan.order, plan.bounds, recipe.bias_slot) if bias else None
    return Leaves(kept.own, kept.sketch, shift)


def _linear(gy_MO: Tensor, x: Tensor, plan: Plan, recipe: Recipe) -> Kept:
    return operators.linear(gy_MO, x.reshape(-1, x.shape[-1]), plan, recipe.facts)


def _transposed(gy_MO: Tensor, x: Tensor, plan: Plan, recipe: Recipe) -> Kept:
    return operators.linear(x.reshape(-1, x.shape[-1]).to(gy_MO.dtype), gy_MO, plan, recipe.facts)


def _embedding(gy_MD: Tensor, tokens: Tensor, plan: Plan, recipe: Recipe) -> Kept:
    tokens_M = tokens.reshape(-1)
    if recipe.padding >= 0:
        gy_MD = gy_MD.masked_fill((tokens_M == recipe.padding)[:, None], 0)
    return operators.embedding(gy_MD, tokens_M, plan, recipe.facts, recipe.sizes[0])


def _layer_norm(gy_MD: Tensor, x: Tensor, plan: Plan, recipe: Recipe) -> Kept:
    hat_MD = layer_norm(x.reshape(gy_MD.shape).float(), gy_MD.shape[1:], eps=recipe.eps)
    return Kept(operators.scale(hat_MD * gy_MD.float(), None, plan.order, plan.bounds, recipe.facts.slot))


def _rms_norm(gy_MD: Tensor, x: Tensor, plan: Plan, recipe: Recipe) -> Kept:
    x_MD = x.reshape(gy_MD.shape)
    inverse_M = inverse_rms(x_MD, torch.finfo(x.dtype).eps if recipe.eps < 0 else recipe.eps)
    gy_MD, x_MD = gy_MD.float(), x_MD.float()
    # In a compiled graph nothing may be written to that was there before.
    out = None if torch.compiler.is_compiling() else scratch(gy_MD, gy_MD.numel()).view(gy_MD.shape)
    product_MD = torch.mul(gy_MD, x_MD, out=out)
    return Kept(operators.scale(product_MD, inverse_M, plan.order, plan.bounds, recipe.facts.slot))


_MEASURES: dict[Kind, Callable[[Tensor, Tensor, Plan, Recipe], Kept]] = {
    "linear": _linear,
    "transposed": _transposed,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
