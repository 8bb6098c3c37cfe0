"""The engine `split`: weight gradients of linear maps computed speaker by speaker, at almost no cost, equal to rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from gradwatch.quantities.engines.module_tap import ModuleTap, Moment
from gradwatch.quantities.engines.split_linear import SplitLinear
from gradwatch.quantities.engines.tapped import Handle, Tapped


class Split(Tapped):
    """Linear maps compute each speaker's weight gradient and sum them, in place of one for all; other modules are tapped.

    The same products in another order: the model's gradients differ at the rounding of their dtype while a step is measured. What
    is measured is as exact as with `Exact`.
    """

    name = "split"

    def _attach(self, tap: ModuleTap) -> Handle:
        module, weight = tap.site.use.module, tap.site.weight
        # A forward that someone else put on the module itself stays, and the module is tapped.
        if not isinstance(module, nn.Linear) or weight is None or "forward" in vars(module):
            return super()._attach(tap)
        return SplitForward(module, tap)


class SplitForward:
    """The forward of a linear module, replaced until it is removed."""

    def __init__(self, module: nn.Linear, tap: ModuleTap) -> None:
        self._module = module
        self._tap = tap
        self._usual: Callable[[Tensor], Tensor] = module.forward
        module.forward = self  # type: ignore[method-assign]

    def remove(self) -> None:
        """Leave the module as it was."""
        if vars(self._module).get("forward") is self:
            del self._module.forward

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A copy of the module, or what was pickled of it, has its usual forward."""
        return partial, (nn.Linear.forward, self._module)

    def __call__(self, input: Tensor) -> Tensor:
        """`nn.Linear.forward`, whose argument has this name."""
        tap, weight = self._tap, self._module.weight
        call = tap.watching.call()
        if not call.stands or not tap.trains:
            return self._usual(input)
        if type(input) is not Tensor or type(weight) not in (Tensor, nn.Parameter):
            tap.miss(call)
            return self._usual(input)
        moment = tap.moment(call)
        if not torch.is_grad_enabled():
            return self._usual(input)
        split = tap.attempt(call, lambda: self._in_dtype(moment, input, weight, self._module.bias))
        return self._usual(input) if split is None else split

    def _in_dtype(self, moment: Moment | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What autocast makes of a linear map it makes of no other function."""
        device = x.device.type
        if not torch.is_autocast_enabled(device):
            return self._split(moment, x, weight, bias)
        kind = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            return self._split(moment, x.to(kind), weight.to(kind), None if bias is None else bias.to(kind))

    def _split(self, moment: Moment | None, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        leaves = self._tap.leaves(moment, x, x.dtype)
        split = SplitLinear.apply(x, weight, bias, *leaves, self._tap.site.recipe)  # type: ignore[no-untyped-call]
        return cast(Tensor, split)
