"""The gradients of a watched model between two optimizer steps: their norms at the end of the last backward, before clipping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from gradwatch.quantities.grad_norm import GradNormReading, measure_grad_norm
from gradwatch.quantities.located import LocatorReading
from gradwatch.quantities.nonfinite_locator import NonfiniteLocator
from gradwatch.quantities.parameter_groups import ParameterGroups
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.backward_end import BackwardEnd
from gradwatch_hooks.watching.guard import Guard

UNFROZEN = "parameters that began to train came by unseen, and may be clipped by now; they are watched from the next step on"


class Gradients:
    """Reads norms at the end of each backward; the last reading before a step is the step's. `flat`: see `flat_parameters`."""

    def __init__(
        self,
        groups: ParameterGroups,
        scaler: Any,
        guard: Guard,
        locator: NonfiniteLocator | None = None,
        flat: Iterable[nn.Parameter] = (),
    ) -> None:
        self.groups = groups
        self._scaler = scaler
        self._guard = guard
        self._norms: GradNormReading | Unavailable | None = None
        self._scale: Tensor | None = None
        self._locator = locator
        self._place: LocatorReading | None = None
        if locator is not None:
            locator.arm()
        self._end = BackwardEnd((*(one.parameter for one in groups.parameters), *flat), self._read)

    @property
    def is_fresh(self) -> bool:
        """Whether a backward came since `clear`."""
        return self._norms is not None

    @property
    def loss_scale(self) -> Tensor | float | None:
        """What the loss was multiplied by in the last backward, None without a scaler."""
        return self._scale

    def norms(self) -> GradNormReading | Unavailable:
        """Those of the last backward; where none was seen (gradients that were set by hand), those of this moment."""
        missed = self._end.attach()
        if self._norms is not None:
            return self._norms
        return Unavailable(UNFROZEN) if missed else measure_grad_norm(self.groups)

    def place(self) -> LocatorReading | None:
        """Where the last backward's values first were not finite, None where nothing looks."""
        if self._place is None and self._locator is not None:
            self._place = self._locator.reading()
        return self._place

    def coverage(self, covered: frozenset[int]) -> Tensor | float:
        """The share of ‖g‖² in these parameters: the same before and after clipping by the norm."""
        members = [(index in covered, one) for index, one in enumerate(self.groups.parameters) if one.parameter.requires_grad]
        inside, outside = (tuple(one for is_inside, one in members if is_inside is wanted) for wanted in (True, False))
        if not outside:
            return 1.0
        norms = measure_grad_norm(ParameterGroups(("covered", "uncovered"), (inside, outside)))
        if isinstance(norms, Unavailable):
            return float("nan")
        squares = norms.norms.square()
        return squares[0] / squares.sum()

    def clear(self) -> None:
        """Begin the next step."""
        self._norms, self._scale, self._place = None, None, None
        if self._locator is not None:
            self._locator.clear()

    def detach(self) -> None:
        """Leave the parameters as they were."""
        self._end.detach()
        if self._locator is not None:
            self._locator.detach()

    def _read(self) -> None:
        with self._guard.within("reading gradient norms"):
            self._scale = scale_of(self._scaler, self.groups.parameters[0].parameter.device)
            self._norms = measure_grad_norm(self.groups, self._scale)
            total = self._norms.total if isinstance(self._norms, GradNormReading) else None
            self._place = self._locator.reading(total) if self._locator is not None else None


def scale_of(scaler: Any, device: torch.device) -> Tensor | None:
    """What a GradScaler multiplies the loss by, as a copy on the device: it changes with the next update."""
    if scaler is None or not scaler.is_enabled():
        return None
    held = getattr(scaler, "_scale", None)
    return held.detach().clone() if isinstance(held, Tensor) else torch.tensor(float(scaler.get_scale()), device=device)


def trained(optimizers: list[Any]) -> set[int]:
    """The ids of all parameters that these optimizers step."""
    return {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}


def of_model(model: nn.Module, groups: ParameterGroups) -> bool:
    """Whether the grouped parameters are still the model's: wrapping it for FSDP replaces them."""
    held = {id(one) for one in model.parameters()}
    return all(id(one.parameter) in held for one in groups.parameters)
