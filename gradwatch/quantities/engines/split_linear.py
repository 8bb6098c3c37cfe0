"""A linear map whose weight gradient is computed speaker by speaker, and summed."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from gradwatch.quantities.engines import operators
from gradwatch.quantities.engines.operators import Plan
from gradwatch.quantities.engines.speaker_gradients import Kept
from gradwatch.quantities.engines.taps import Recipe, attempt


class SplitLinear(torch.autograd.Function):
    """y = xWᵀ + b. The gradient of W is Σ_k W_k, W_k = Y_kᵀX_k, which also gives the leaves their gradients; see `Tap`.

    Without a plan, and where the backward pass is itself differentiated, the gradients are the usual ones and nothing is measured.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        own: Tensor | None,
        sketch: Tensor | None,
        shift: Tensor | None,
        order: Tensor | None,
        bounds: Tensor | None,
        wants: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        recipe: Recipe,
    ) -> Tensor:
        """The map itself."""
        if torch.compiler.is_compiling():
            ctx.save_for_backward(x, weight, order, bounds, wants, a, b)
        else:
            ctx.save_for_backward(x, weight)
            ctx.plan = (order, bounds, wants, a, b)
        ctx.recipe, ctx.is_off = recipe, order is None
        ctx.has_weight, ctx.has_shift, ctx.has_bias = own is not None, shift is not None, bias is not None
        return linear(x, weight, bias).data  # no view: it may be written to

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the input, the weight, the bias and the leaves."""
        x, weight, *plan = ctx.saved_tensors
        gx = gy @ weight if ctx.needs_input_grad[0] else None
        gy_MO, x_MI = gy.reshape(-1, gy.shape[-1]), x.reshape(-1, x.shape[-1])
        kept: Kept = Kept()
        shift: Tensor | None = None
        if not ctx.is_off and not torch.is_grad_enabled():
            plan = Plan(*(plan or ctx.plan))
            measuring = partial(_measure, gy_MO, x_MI, plan, ctx.recipe, weight=ctx.has_weight, bias=ctx.has_shift)
            kept, shift = attempt(measuring, ctx.recipe, (kept, shift))
        gw = gb = None
        if ctx.needs_input_grad[1]:
            gw = gy_MO.mT @ x_MI if kept.total is None else kept.total
        if ctx.has_bias and ctx.needs_input_grad[2]:
            gb = gy_MO.sum(0) if shift is None else shift.sum(0).to(gy.dtype)
        return gx, gw, gb, kept.own, kept.sketch, shift, *(None,) * 6


def _measure(gy_MO: Tensor, x_MI: Tensor, plan: Plan, recipe: Recipe, *, weight: bool, bias: bool) -> tuple[Kept, Tensor | None]:
    kept = operators.linear(gy_MO, x_MI, plan, recipe.facts, total=True) if weight else Kept()
    return kept, operators.scale(gy_MO, None, plan.order, plan.bounds, recipe.bias_slot) if bias else None
