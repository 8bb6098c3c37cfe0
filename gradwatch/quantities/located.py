"""What a search for NaN and infinity found in one step: still on the device, and in names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp, all_reduce


@dataclass(frozen=True, slots=True)
class Located:
    """Where a step's values first were not finite; nothing is set where all that was looked at is finite.

    `forward` is the first module, in the order of the forward passes, with such an output; `backward` the first, in the order of
    the backward passes, that was given such a gradient of its output. `gradient` and `weight` name the parameters with such a
    gradient, or with such a value before the optimizer's step. `rank` is the process of `forward`, else of `backward`. `unseen`
    names modules whose outputs were not looked at, as in compiled code: of them, only parameters tell.
    """

    forward: str | None = None
    backward: str | None = None
    gradient: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    rank: int = 0
    unseen: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.forward is not None or self.backward is not None or self.gradient or self.weight)

    def sentence(self) -> str:
        """What was found, in words; empty where nothing was."""
        found = (
            f"the weight {_some(self.weight)} was not finite before the step" if self.weight else "",
            f"{self.forward!r} is the first module whose output is not finite" if self.forward is not None else "",
            f"{self.backward!r} is the first that was given a gradient that is not" if self.backward is not None else "",
            f"the gradient of {_some(self.gradient)} is not finite" if self.gradient else "",
        )
        told = "; ".join(filter(None, found))
        only = (
            f" (only parameters are looked at in {_some(self.unseen)}: compiled, or not called as modules)" if self.unseen else ""
        )
        return f"on rank {self.rank}, {told}{only}" if told else ""


@dataclass(frozen=True, slots=True, eq=False)
class LocatorReading:
    """What was found in one step, on the device.

    `first_2` tells of the first non-finite output and of the first non-finite gradient of an output: n·M + m where it is of the
    m-th of M `modules`, the n-th that was read; inf where there is none. `ranks_2` are the processes that they were found on.
    `gradient_P` and `weight_P` are above 0 for each parameter that is not finite. All are on one device. `order` tells when each
    module was last called; `own` is the module of each parameter, None where several share it.
    """

    first_2: Tensor
    ranks_2: Tensor
    gradient_P: Tensor
    weight_P: Tensor
    parameters: tuple[str, ...]
    modules: tuple[str, ...]
    own: tuple[int | None, ...]
    order: Mapping[int, int]

    def pack(self) -> Tensor:
        """Everything that is to be read, as one vector."""
        return torch.cat([self.first_2, self.ranks_2, self.gradient_P, self.weight_P])

    @property
    def size(self) -> int:
        """The number of entries of `pack`."""
        return 4 + 2 * len(self.parameters)

    def unpack(self, numbers: Sequence[float]) -> Located:
        """The names, from what `pack` gave."""
        (forward, backward, forward_rank, backward_rank), flags = numbers[:4], numbers[4:]
        gradients, weights = flags[: len(self.parameters)], flags[len(self.parameters) :]
        return Located(
            self.modules[int(forward) % len(self.modules)] if isfinite(forward) else None,
            self._earliest(int(backward) % len(self.modules), gradients) if isfinite(backward) else None,
            self._named(gradients),
            self._named(weights),
            int(forward_rank if isfinite(forward) or not isfinite(backward) else backward_rank),
            tuple(dict.fromkeys(self.modules[one] for one in self.own if one is not None and one not in self.order)),
        )

    def read(self) -> Located:
        """The names, with one host sync."""
        return self.unpack(self.pack().tolist())

    def over(self, group: ProcessGroup | None = None) -> LocatorReading:
        """The reading of all processes: the earliest of any, and every parameter that is not finite on one of them.

        Each process of the group must call this at the same steps, with the same modules and parameters.
        """
        size = torch.distributed.get_world_size(group)
        first_2 = self.first_2.double() * size + self.ranks_2
        flags_2P = torch.cat([self.gradient_P, self.weight_P])
        all_reduce(first_2, ReduceOp.MIN, group=group)
        all_reduce(flags_2P, ReduceOp.MAX, group=group)
        ranks_2 = torch.where(first_2.isfinite(), first_2 % size, self.ranks_2)
        gradient_P, weight_P = flags_2P.chunk(2)
        return replace(self, first_2=torch.floor(first_2 / size), ranks_2=ranks_2, gradient_P=gradient_P, weight_P=weight_P)

    def _earliest(self, module: int, gradients: Sequence[float]) -> str:
        """Of a module whose output's gradient was read, and those whose own parameters show the same, the one that ran last.

        A gradient that is not finite makes that of its module's parameters so, and not every module's was read.
        """
        shown = (own for own, bad in zip(self.own, gradients, strict=True) if bad and own in self.order)
        return self.modules[max([module, *(one for one in shown if one is not None)], key=lambda one: self.order.get(one, -1))]

    def _named(self, flags: Sequence[float]) -> tuple[str, ...]:
        return tuple(name for name, bad in zip(self.parameters, flags, strict=True) if bad)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + f" and {len(names) - 3} more" * (len(names) > 3)
