"""The gradient of each parameter in each backward, as it arrives: before it is accumulated, and before processes share it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from gradwatch.quantities.engines.clock import CLOCK
from gradwatch.quantities.own_hook import REFUSALS
from gradwatch.quantities.parameter_groups import Member
from gradwatch.quantities.sharding import is_dtensor


class LeafGradients:
    """Hooks on parameters, while they are attached. `see` is called with a parameter's index and gradient, once a backward;
    `failed` with the reason where it raised what must not reach that backward.

    The gradient is the sum over all uses of the parameter, but that a backward within the backward (reentrant checkpointing) brings
    a part of its own. Of DTensors nothing is seen.
    """

    def __init__(self, members: tuple[Member, ...], see: Callable[[int, Tensor], None], failed: Callable[[str], None]) -> None:
        self._members = members
        self._see = see
        self._failed = failed
        self._handles: dict[int, RemovableHandle] = {}

    def attach(self) -> None:
        """Hook the parameters that require a gradient by now, and are not hooked."""
        for index, member in enumerate(self._members):
            if index not in self._handles and member.parameter.requires_grad and not is_dtensor(member.parameter):
                hook = partial(self._on_gradient, index)
                self._handles[index] = member.parameter.register_hook(hook)  # type: ignore[no-untyped-call]

    def detach(self) -> None:
        """Take the hooks off."""
        for handle in self._handles.values():
            handle.remove()
        self._handles = {}

    def _on_gradient(self, index: int, gradient: Tensor) -> None:
        try:
            with CLOCK:
                self._see(index, gradient.detach())
        except REFUSALS as error:
            self._failed(f"the gradient of {self._members[index].name!r} could not be measured: {error}")
