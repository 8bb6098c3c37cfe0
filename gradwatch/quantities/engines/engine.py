"""What every engine does, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from gradwatch.quantities.parameter_groups import Member
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.unavailable import Unavailable


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What engines measure: the parameters of a model that were chosen, in the model's order, and how many speakers there are.

    `speakers` counts the unassigned one, which comes last. `is_spread` says that several processes share the gradient: then only
    what adds up over processes can be measured. `may_trace`: taps may become part of a compiled graph, and change its rounding.
    """

    model: nn.Module
    parameters: tuple[Member, ...]
    speakers: int
    is_spread: bool = False
    seed: int = 0
    may_trace: bool = True


class Engine(Protocol):
    """Measures what each speaker adds to the gradients between two optimizer steps.

    `begin` and `end` enclose each forward pass that is measured and its backward, or its forward alone where the loss of several
    passes goes through one backward later. `sums` is what this process saw since `clear`: a float32 tensor that adds up over
    processes, of a shape that depends on the target alone, or None where what the engine measures does not add up. `conclude`
    makes the reading of it, the sums of all processes given and divided by what the training divides its gradients by. Neither
    waits for the device. Nothing here changes a gradient bit, but for the engine `split`.
    """

    name: str

    def begin(self, batch: BatchRoles) -> None:
        """Measure what the forward passes up to `end` will add in their backward."""
        ...

    def end(self) -> None:
        """Measure no further forward pass."""
        ...

    def sums(self) -> Tensor | None:
        """What adds up over processes, on the parameters' device; None: nothing does, and `conclude(None)` makes the reading."""
        ...

    def conclude(self, sums: Tensor | None, loss_scale: Tensor | float = 1.0) -> RoleGradReading | Unavailable:
        """The reading of everything since `clear`; gradients are divided by `loss_scale`."""
        ...

    def clear(self) -> None:
        """Forget everything measured, and begin the next step."""
        ...

    def detach(self) -> None:
        """Leave the model as it was."""
        ...
