"""The measuring of a backward pass, counted; in a compiled graph as operators, which it calls and does not look into.

An operator of a compiled graph has outputs of fixed shapes: what is not wanted in a step is zeros there, and absent else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import custom_op

from gradwatch.quantities.engines.grouping import Grouping
from gradwatch.quantities.engines.speaker_gradients import Kept, Signs, Wanted, of_embedding, of_linear, of_scale
from gradwatch.quantities.engines.stores import USES


class Plan(NamedTuple):
    """Where the rows of each speaker are (`Grouping`), what a weight's store wants, and the signs of its sketch."""

    order: Tensor
    bounds: Tensor
    wants: Tensor
    a: Tensor
    b: Tensor


class Facts(NamedTuple):
    """What never changes of a weight: `Store.is_small`, the sketch's width and the offset in it, `Store.slot`."""

    small: bool
    width: int
    offset: int
    slot: int


def linear(gy_MO: Tensor, x_MI: Tensor, plan: Plan, facts: Facts, total: bool = False) -> Kept:
    """`of_linear`, as the store wants it."""
    if not torch.compiler.is_compiling():
        return of_linear(gy_MO, x_MI, *_asked(plan, facts, total))
    own, sketch, whole = _linear(gy_MO, x_MI, *plan, *facts, total)
    return _kept(own, sketch, whole if total else None, facts)


def embedding(gy_MD: Tensor, tokens_M: Tensor, plan: Plan, facts: Facts, vocabulary: int) -> Kept:
    """`of_embedding`, as the store wants it."""
    if not torch.compiler.is_compiling():
        grouping, signs, wanted = _asked(plan, facts)
        return of_embedding(gy_MD, tokens_M, grouping, signs, vocabulary, wanted)
    own, sketch = _embedding(gy_MD, tokens_M, *plan, *facts, vocabulary)
    return _kept(own, sketch, None, facts)


def scale(product_MD: Tensor, scale_M: Tensor | None, order: Tensor, bounds: Tensor, slot: int) -> Tensor:
    """`of_scale`."""
    if torch.compiler.is_compiling():
        summed: Tensor = _scale(product_MD, scale_M, order, bounds, slot)
        return summed
    USES[slot] += 1
    return of_scale(product_MD, Grouping(order, bounds), scale_M)


def _asked(plan: Plan, facts: Facts, total: bool = False) -> tuple[Grouping, Signs, Wanted]:
    USES[facts.slot] += 1
    own, sketched = plan.wants.tolist()
    wanted = Wanted(bool(own) and facts.small, bool(own) and not facts.small, facts.width if sketched else 0, total)
    return Grouping(plan.order, plan.bounds), Signs(plan.a, plan.b, facts.offset), wanted


def _kept(own: Tensor, sketch: Tensor, total: Tensor | None, facts: Facts) -> Kept:
    return Kept(own, None if facts.small else sketch, total)


def _shapes(gy: Tensor, plan: Plan, facts: Facts, numel: int) -> tuple[Tensor, Tensor]:
    speakers = len(plan.bounds) - 1
    own = gy.new_zeros(speakers, numel if facts.small else speakers, dtype=torch.float32)
    return own, gy.new_zeros(speakers, 0 if facts.small else facts.width, dtype=torch.float32)


def _filled(kept: Kept, gy: Tensor, plan: Plan, facts: Facts, numel: int) -> tuple[Tensor, Tensor]:
    own, sketch = _shapes(gy, plan, facts, numel)
    return own if kept.own is None else kept.own, sketch if kept.sketch is None else kept.sketch


def _linear_now(
    gy: Tensor, x: Tensor, order: Tensor, bounds: Tensor, wants: Tensor, a: Tensor, b: Tensor, *rest: int
) -> tuple[Tensor, Tensor, Tensor]:
    plan, facts, total = Plan(order, bounds, wants, a, b), Facts(bool(rest[0]), *rest[1:4]), bool(rest[4])
    kept = of_linear(gy, x, *_asked(plan, facts, total))
    return *_filled(kept, gy, plan, facts, gy.shape[1] * x.shape[1]), gy.new_empty(0) if kept.total is None else kept.total


def _linear_shapes(
    gy: Tensor, x: Tensor, order: Tensor, bounds: Tensor, wants: Tensor, a: Tensor, b: Tensor, *rest: int
) -> tuple[Tensor, Tensor, Tensor]:
    plan, facts, total = Plan(order, bounds, wants, a, b), Facts(bool(rest[0]), *rest[1:4]), bool(rest[4])
    own, sketch = _shapes(gy, plan, facts, gy.shape[1] * x.shape[1])
    return own, sketch, gy.new_empty(gy.shape[1], x.shape[1]) if total else gy.new_empty(0)


def _embedding_now(
    gy: Tensor, tokens: Tensor, order: Tensor, bounds: Tensor, wants: Tensor, a: Tensor, b: Tensor, *rest: int
) -> tuple[Tensor, Tensor]:
    plan, facts = Plan(order, bounds, wants, a, b), Facts(bool(rest[0]), *rest[1:4])
    grouping, signs, wanted = _asked(plan, facts)
    kept = of_embedding(gy, tokens, grouping, signs, rest[4], wanted)
    return _filled(kept, gy, plan, facts, rest[4] * gy.shape[1])


def _embedding_shapes(
    gy: Tensor, _tokens: Tensor, order: Tensor, bounds: Tensor, wants: Tensor, a: Tensor, b: Tensor, *rest: int
) -> tuple[Tensor, Tensor]:
    return _shapes(gy, Plan(order, bounds, wants, a, b), Facts(bool(rest[0]), *rest[1:4]), rest[4] * gy.shape[1])


def _scale_now(product: Tensor, scale_M: Tensor | None, order: Tensor, bounds: Tensor, slot: int) -> Tensor:
    USES[slot] += 1
    return of_scale(product, Grouping(order, bounds), scale_M)


def _scale_shapes(product: Tensor, _scale: Tensor | None, _order: Tensor, bounds: Tensor, _slot: int) -> Tensor:
    return product.new_empty(len(bounds) - 1, product.shape[1], dtype=torch.float32)


def _operator(name: str, arguments: str, results: str, now: Callable[..., Any], shapes: Callable[..., Any]) -> Callable[..., Any]:
    made = custom_op(f"gradwatch::{name}", now, mutates_args=(), schema=f"({arguments}) -> {results}")
    made.register_fake(shapes)
    return made


_PLANNED = "Tensor order, Tensor bounds, Tensor wants, Tensor a, Tensor b, bool small, int width, int offset, int slot"
_linear = _operator(
    "linear", f"Tensor gy, Tensor x, {_PLANNED}, bool total", "(Tensor, Tensor, Tensor)", _linear_now, _linear_shapes
)
_embedding = _operator(
    "embedding", f"Tensor gy, Tensor tokens, {_PLANNED}, int vocabulary", "(Tensor, Tensor)", _embedding_now, _embedding_shapes
)
_scale = _operator(
    "scale", "Tensor product, Tensor? scale, Tensor order, Tensor bounds, int slot", "Tensor", _scale_now, _scale_shapes
)
