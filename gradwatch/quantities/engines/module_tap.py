"""One module's tap: decides at each call whether, and for which batch, its backward is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gradwatch.quantities.engines.alignment import positions
from gradwatch.quantities.engines.checkpoint_regions import Call, Regions
from gradwatch.quantities.engines.grouping import group_units
from gradwatch.quantities.engines.output_gradient import is_transformed
from gradwatch.quantities.engines.stores import Stores
from gradwatch.quantities.engines.tap_sites import Site
from gradwatch.quantities.engines.taps import Tap
from gradwatch.quantities.own_hook import REFUSALS
from gradwatch.quantities.roles import BatchRoles

NEW = Call(True)


class Moment:
    """The batch of a forward pass that is measured, its units grouped by speaker."""

    def __init__(self, batch: BatchRoles, speakers: int, device: torch.device) -> None:
        self.batch = batch
        self._grouped = group_units(batch, speakers)
        self.order, self.bounds = self._grouped.to(device)

    def order_on(self, device: torch.device) -> Tensor:
        """The order of the units, on a device."""
        return self.order if self.order.device == device else self._grouped.to(device).order


@dataclass(slots=True, eq=False)
class Watching:
    """What all taps of an engine see: the batch being measured, and whether they are to be there at all.

    From the first batch of a step to its end a tap stands at every call, measured or not: reentrant checkpointing calls modules
    again in the backward pass, after the batch has ended. Of the other kind see `Regions`.
    """

    moment: Moment | None = None
    is_armed: bool = False
    coarseness: float = 0.0  # of the dtype in which products are computed
    regions: Regions = field(default_factory=Regions)
    may_trace: bool = True

    def call(self) -> Call:
        """What to do at a module's call."""
        if torch.compiler.is_compiling():
            return Call(self.is_armed and self.may_trace)
        return Call(False) if is_transformed() else self.regions.call(self.is_armed)


def rounding(kind: torch.dtype) -> float:
    """The relative error of a number's rounding in dtypes of fewer bits than float32, else 0."""
    return torch.finfo(kind).eps / 2 if kind in (torch.bfloat16, torch.float16) else 0.0


class ModuleTap:
    """Taps a module that can be tapped, by a forward hook."""

    def __init__(self, site: Site, stores: Stores, watching: Watching) -> None:
        self.site = site
        self.watching = watching
        self._stores = stores
        self._waiting: list[Moment] = []

    def hook(self, module: nn.Module, args: tuple[object, ...], output: object) -> Tensor | None:
        """The forward hook: the output, tapped."""
        call = self.watching.call()
        if not call.stands or not self.trains:
            return None
        x = args[0] if args else None
        if type(output) is not Tensor or type(x) is not Tensor or len(args) > 1 or not self.site.use.is_whole(x, output):
            self.miss(call)
            return None
        moment = self.moment(call)
        if not torch.is_grad_enabled() or not output.requires_grad:
            return None
        return self.attempt(call, lambda: self._tapped(moment, x, output))

    def attempt(self, call: Call, measured: Callable[[], Tensor]) -> Tensor | None:
        """A call with its tap, None where torch refuses to have one."""
        if torch.compiler.is_compiling():
            return measured()
        try:
            return measured()
        except REFUSALS:
            self.miss(call)
            return None

    def _tapped(self, moment: Moment | None, x: Tensor, output: Tensor) -> Tensor:
        tapped: Tensor = Tap.apply(output, x.detach(), *self.leaves(moment, x, output.dtype), self.site.recipe)  # type: ignore[no-untyped-call]
        return tapped

    def clear(self) -> None:
        """Forget the calls without gradients that reentrant checkpointing might have repeated."""
        self._waiting.clear()

    @property
    def trains(self) -> bool:
        """Whether one of the module's parameters trains."""
        return any(store.trains for store in self.site.stores)

    def moment(self, call: Call) -> Moment | None:
        """The batch that a call belongs to, None where it is not measured.

        Reentrant checkpointing calls a module first without gradients, and again in the backward pass: then it is that of the
        first call. Where several wait, of different batches, none can be said to be the one.
        """
        now = None if call.repeats else self.watching.moment
        if call.repeats or torch.compiler.is_compiling():
            return now
        if not torch.is_grad_enabled():
            if now is not None:
                self._waiting.append(now)
            return None
        if torch._C._current_graph_task_id() == -1:
            return now
        if not self._waiting:
            return None
        if any(one is not self._waiting[-1] for one in self._waiting):
            self.miss()
        return self._waiting.pop()

    def leaves(self, moment: Moment | None, x: Tensor, kind: torch.dtype) -> tuple[Tensor | None, ...]:
        """The leaves and the plan of a call that computes in a dtype, as `Tap` takes them; none where it is not measured."""
        if moment is None or not self._lines_up(moment, x):
            return (None,) * 8
        weight, bias = self.site.weight, self.site.bias
        planned = weight or bias
        assert planned is not None
        self._follow(x.device, kind)
        order = moment.order if torch.compiler.is_compiling() else moment.order_on(x.device)
        shift = bias.own if bias is not None and bias.counts else None
        if weight is None or not weight.counts:
            return None, None, shift, order, moment.bounds, planned.wants, planned.a, planned.b
        return weight.own, None if weight.is_small else weight.sketch, shift, order, moment.bounds, weight.wants, weight.a, weight.b

    def miss(self, call: Call = NEW) -> None:
        """Note that a call could not be measured, where it should have been."""
        if call.repeats:
            return
        if self.watching.moment is not None or self._waiting:
            for store in self.site.stores:
                store.missed = True

    def _lines_up(self, moment: Moment, x: Tensor) -> bool:
        is_embedding = self.site.use.kind == "embedding"
        lead = x.shape if is_embedding else x.shape[:-1]
        # A vector of tokens is as well the positions 0 to T - 1, which all rows share.
        lines_up = positions(moment.batch, lead) is not None and not (is_embedding and len(lead) == 1)
        if not lines_up:
            self.miss()
        return lines_up

    def _follow(self, device: torch.device, kind: torch.dtype) -> None:
        """Have the leaves where the module computes, which may be elsewhere than where its parameters rest."""
        if not torch.compiler.is_compiling():
            self.watching.coarseness = max(self.watching.coarseness, rounding(kind))
            for store in self.site.stores:
                if store.device != device:
                    self._stores.move(store, device)
