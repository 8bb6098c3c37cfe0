"""Several processes that train one model: who they are, and how their sums come together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel

from gradwatch.quantities.parameter_groups import Member
from gradwatch.quantities.sharding import is_dtensor


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The processes that share a gradient. `group` None is a process on its own."""

    group: ProcessGroup | None
    device: torch.device

    @property
    def size(self) -> int:
        """How many they are."""
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """The place of this process among them; the first writes what is equal on all."""
        return 0 if self.group is None else dist.get_rank(self.group)

    def largest(self, number: float) -> float:
        """The largest of all processes' numbers; each has to ask at the same step. Waits."""
        if self.group is None:
            return number
        held = torch.tensor([number], dtype=torch.float64 if self.device.type == "cpu" else torch.float32, device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX, group=self.group)
        return float(held)

    def differ(self, number: float) -> bool:
        """Whether the processes' numbers are not all the same; each has to ask at the same step. Waits."""
        if self.group is None:
            return False
        held = torch.tensor([number, -number], device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX, group=self.group)
        most, least = held.tolist()
        return bool(most != -least)

    def mean_(self, sums: Tensor) -> Tensor:
        """The mean over the processes, as DDP and FSDP make it of gradients."""
        if self.group is not None:
            dist.all_reduce(sums, group=self.group)
            sums /= self.size
        return sums


def spread_of(model: nn.Module, members: tuple[Member, ...], group: ProcessGroup | None) -> Spread:
    """The processes that share a model's gradient: `group`, DDP's own, or the mesh of FSDP2 and FSDP1; else this one alone."""
    device = members[0].parameter.device
    if group is None and dist.is_available() and dist.is_initialized():
        group = _found(model, members)
    return Spread(group if group is not None and dist.get_world_size(group) > 1 else None, device)


def _found(model: nn.Module, members: tuple[Member, ...]) -> ProcessGroup | None:
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return module.process_group
    meshed = any(is_dtensor(one.parameter) or one.sharding.groups for one in members)
    return dist.group.WORLD if meshed else None
