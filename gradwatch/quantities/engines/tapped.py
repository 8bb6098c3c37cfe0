"""An engine of taps: what `Exact`, `LoRA` and `Split` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from torch import Tensor

from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.engines.module_tap import ModuleTap, Moment, Watching, rounding
from gradwatch.quantities.engines.stores import SMALL, Stores, device_of
from gradwatch.quantities.engines.tallying import Tally, complete
from gradwatch.quantities.engines.tap_sites import sites, tied
from gradwatch.quantities.own_hook import OwnHook
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.unavailable import Unavailable


class Handle(Protocol):
    """What undoes an attachment to a module."""

    def remove(self) -> None:
        """Leave the module as it was."""
        ...


class Tapped:
    """Measures with a tap at every module that can be tapped; see `Engine`."""

    name = "tapped"
    small = SMALL

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stores = Stores(target, tied(target), self.small)
        self._watching = Watching(may_trace=target.may_trace)
        self._passes = 0
        self._by_position = False
        self._taps = [ModuleTap(site, self._stores, self._watching) for site in sites(self._stores)]
        self._handles: list[Handle] = [self._attach(tap) for tap in self._taps]

    def begin(self, batch: BatchRoles) -> None:
        """Measure what the forward passes up to `end` will add in their backward."""
        self._stores.prepare()
        kinds = {member.parameter.dtype for member in self._target.parameters}
        self._watching.coarseness = max(self._watching.coarseness, *map(rounding, kinds))
        device = device_of(self._target.parameters[0].parameter)
        self._watching.moment = Moment(batch, self._target.speakers, device)
        self._watching.is_armed = True
        self._passes += 1
        self._by_position = self._by_position or batch.speaker_BT is not None

    def end(self) -> None:
        """Measure no further forward pass."""
        self._watching.moment = None

    def sums(self) -> Tensor | None:
        """Sketches and small parameters' gradients, where several processes share the gradient; else nothing that adds up."""
        return Tally(self._stores, self._passes).sums() if self._target.is_spread else None

    def conclude(self, sums: Tensor | None, loss_scale: Tensor | float = 1.0) -> RoleGradReading | Unavailable:
        """The reading of everything since `clear`; exact but for what `Stores` sketches."""
        tally = Tally(self._stores, self._passes)
        if not tally.covered:
            return Unavailable(self._nothing())
        if tally.spoilt:
            names = ", ".join(repr(self._target.parameters[store.index].name) for store in tally.spoilt[:3])
            return Unavailable(
                f"{self.name}: {names} took part in some of the step's passes only, or with rows that are not the batch's"
            )
        gram = tally.gram() if sums is None else tally.gram_of_sums(sums)
        norm_error, cosine_error = (max(error, self._watching.coarseness) for error in tally.error)
        return RoleGradReading(
            self.name, gram / loss_scale**2, tally.covered, norm_error, cosine_error, by_position=self._by_position
        )

    def clear(self) -> None:
        """Forget everything measured, and begin the next step."""
        whole = {id(store) for store in complete(self._stores, self._passes)}
        for store in self._stores.all if whole else ():
            partial = bool(store.uses) and bool(store.wants[1]) and id(store) not in whole
            store.is_out = store.is_out or store.missed or partial
        self._stores.begin(learned=bool(whole))
        for tap in self._taps:
            tap.clear()
        self._watching.moment, self._watching.is_armed = None, False
        self._watching.coarseness = 0.0
        self._passes, self._by_position = 0, False

    def detach(self) -> None:
        """Leave the model as it was, once nothing that was tapped can be computed again."""
        handles, self._handles = self._handles, []
        self.clear()
        self._watching.regions.when_gone(partial(_remove, handles))

    def _attach(self, tap: ModuleTap) -> Handle:
        return tap.site.use.module.register_forward_hook(OwnHook(tap.hook), prepend=True)

    def _nothing(self) -> str:
        if not self._taps:
            return f"{self.name}: none of the parameters to measure belongs to a linear map, an embedding or a norm"
        failures = [store.failure for store in self._stores.all if store.failure]
        if failures:
            return f"{self.name}: {failures[0]}"
        return (
            f"{self.name}: no tapped module lined up with the batch of {self._passes} measured passes; give the role ids of the "
            "rows that go into the model, and watch it before its first call where it is compiled"
        )


def _remove(handles: Sequence[Handle]) -> None:
    for handle in handles:
        handle.remove()
