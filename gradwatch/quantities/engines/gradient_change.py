"""What a backward added to sharded gradients, where the parameters' own hooks do not fire."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from gradwatch.quantities.engines.sketched_gradient import sketch_gradient_
from gradwatch.quantities.parameter_groups import Member
from gradwatch.quantities.parameter_sketch import ParameterSketch
from gradwatch.quantities.sharding import is_dtensor


class GradientChange:
    """The change of `.grad` of some parameters from `open` to `close`, sketched.

    Gradients there are reduced already, and each process holds a shard: a sketch is multiplied by the number of shards, so that
    the mean over all processes is the sketch of the whole. Sketching is linear: the sketch before is taken from that after.
    """

    def __init__(self, sketch: ParameterSketch, members: tuple[Member, ...], indices: list[int]) -> None:
        self._sketch = sketch
        self._members = members
        self._by_shards: dict[int, list[int]] = {}
        for index in indices:
            self._by_shards.setdefault(prod(group.size() for group in members[index].sharding.groups), []).append(index)
        self.indices = frozenset(indices)
        self._before: Tensor | None = None
        self._seen: list[tuple[int, int] | None] = []

    def open(self, device: torch.device) -> None:
        """Take the gradients as they are for what was there before."""
        seen = self._marks()
        if self._before is None or seen != self._seen:
            self._before, self._seen = self._taken(device), seen

    def close(self) -> Tensor | None:
        """What was added since `open`, float32 of shape (m,), None where no gradient was touched."""
        seen = self._marks()
        if self._before is None or seen == self._seen:
            return None
        after = self._taken(self._before.device)
        change = after - self._before
        self._before, self._seen = after, seen
        return change

    def clear(self) -> None:
        """Forget the gradients: the next `open` reads them anew."""
        self._before = None

    def _marks(self) -> list[tuple[int, int] | None]:
        gradients = [self._members[index].parameter.grad for part in self._by_shards.values() for index in part]
        return [None if one is None else _mark(one) for one in gradients]

    def _taken(self, device: torch.device) -> Tensor:
        total_m = torch.zeros(self._sketch.width, device=device)
        for shards, indices in self._by_shards.items():
            part_m = torch.zeros_like(total_m)
            for index in indices:
                parameter = self._members[index].parameter
                if parameter.grad is not None:
                    sketch_gradient_(part_m, self._sketch, index, parameter, parameter.grad)
            total_m.add_(part_m, alpha=shards)
        return total_m


def _mark(gradient: Tensor) -> tuple[int, int]:
    """What changes when a gradient does. FSDP adds to the shard that a DTensor holds, and the DTensor does not see it."""
    held = gradient.to_local() if is_dtensor(gradient) else gradient
    return id(gradient), held._version
