"""L2 norm of the gradients, of the whole model and of each group of modules, whatever their dtype and however they are spread."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed import ReduceOp, all_reduce

from gradwatch.quantities.parameter_groups import ParameterGroups
from gradwatch.quantities.sharding import Sharding, is_dtensor
from gradwatch.quantities.unavailable import Unavailable, why_partial

NARROW = (torch.float16, torch.bfloat16, torch.float32)  # what the norm's kernel can accumulate in float32
PIECE = 1 << 16  # entries


@dataclass(frozen=True, slots=True)
class GradNorms:
    """Norms of one step's gradient; `groups` holds those in which a parameter has one. NaN and infinities are kept."""

    total: float
    groups: dict[str, float]

    def as_metrics(self) -> dict[str, float]:
        """The norm of each scope, that of the whole model under the empty one: at most `max_groups` + 1 numbers.

        `for scope, norm in norms.as_metrics().items(): run.log({"grad_norm": norm}, step, scope=scope)`
        """
        return {"": self.total, **self.groups}


@dataclass(frozen=True, slots=True, eq=False)
class GradNormReading:
    """Norms that are still on the device.

    `total` is a 0-dimensional float32 tensor; `norms` and `present`, float32 too, have shape (G,), one entry a group: `present` is
    above 0 where a parameter of the group has a gradient on any process that shares it. Without any gradient, `total` is NaN.
    """

    names: tuple[str, ...]
    total: Tensor
    norms: Tensor
    present: Tensor

    def read(self) -> GradNorms | Unavailable:
        """The numbers, with one host sync."""
        total, *rest = torch.cat([self.total.view(1), self.norms, self.present]).tolist()
        norms, present = rest[: len(self.names)], rest[len(self.names) :]
        groups = {name: norm for name, norm, there in zip(self.names, norms, present, strict=True) if there}
        return GradNorms(total, groups) if groups else Unavailable(_nothing(self.names))


@torch.no_grad()
def measure_grad_norm(groups: ParameterGroups, loss_scale: Tensor | float | None = None) -> GradNormReading | Unavailable:
    """Measure ‖g‖₂ over all parameters and over each group, after backward and before clipping and the optimizer's step.

    `loss_scale` is what the loss was multiplied by (AMP), a number or a 0-dimensional tensor: norms are divided by it. Squares are
    accumulated in float32 whatever the dtype: a norm above 1.8e19 reads Inf, one below 1e-19 loses precision. Duplicates in a
    sparse gradient are summed first. Of sharded parameters (DTensor, FSDP) the squares are summed over the processes that hold the
    parts: each of them must call this at the same steps. A parameter without a gradient contributes nothing; a group of such is
    absent, not 0.

    Unavailable where no gradient exists here or gradients are partial: DeepSpeed ZeRO, weights on the meta device. Nothing on this
    process tells of a pipeline's other stages, or of a backward whose reduction was left out (`no_sync`): that is the caller's to
    know. Reads gradients only; no host sync, but for sparse gradients on a device.
    """
    partial = why_partial(groups.parameters)
    if partial:
        return Unavailable(partial)
    # In the model's order on every process, and whether or not it has a gradient: processes must meet in the same collectives.
    shardings = dict.fromkeys(one.sharding for one in groups.parameters)
    parts = [part for part in (_squares(groups, sharding) for sharding in shardings) if part is not None]
    if not parts:
        return Unavailable(_nothing(groups.names))
    squares_G, present_G = torch.stack([part.to(parts[0].device) for part in parts]).sum(0)
    norms_G, total = _unscaled(squares_G.sqrt(), loss_scale), _unscaled(squares_G.sum().sqrt(), loss_scale)
    return GradNormReading(groups.names, torch.where(present_G.any(), total, torch.nan), norms_G, present_G)


def _squares(groups: ParameterGroups, sharding: Sharding) -> Tensor | None:
    """‖g‖² of each group and whether it has a gradient, of the parameters that are spread alike: (2, G); None where none has."""
    cells: defaultdict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = defaultdict(list)
    for index, members in enumerate(groups.members):
        for one in members:
            gradient = _local(one.parameter) if one.sharding == sharding else None
            if gradient is not None:
                cells[gradient.device, gradient.dtype].append((index, gradient))
    if not cells and not sharding.groups:
        return None
    home = sharding.device or next(iter(cells))[0]
    sums_2G = torch.zeros(2, len(groups.names), device=home)
    for gradients in cells.values():
        sums_2G += _cell(gradients, len(groups.names)).to(home)
    for group in sharding.groups:
        all_reduce(sums_2G, ReduceOp.SUM, group=group)
    return sums_2G


def _local(parameter: nn.Parameter) -> Tensor | None:
    """The values of a parameter's gradient that this process holds."""
    gradient = parameter.grad
    if is_dtensor(gradient):
        if not is_dtensor(parameter):
            return gradient.full_tensor()
        # A partial gradient's squares cannot be summed: it takes its parameter's placement first.
        if gradient.placements != parameter.placements:
            gradient = gradient.redistribute(placements=parameter.placements)
        return gradient.to_local()
    if gradient is None or gradient.layout is torch.strided:
        return gradient
    return gradient.coalesce().values() if gradient.layout is torch.sparse_coo else gradient.values()


def _cell(gradients: list[tuple[int, Tensor]], size: int) -> Tensor:
    """‖g‖² of each group and 1 where it has a gradient, from those of one device and dtype in the groups' order: (2, size)."""
    first = gradients[0][1]
    zero, one = torch.zeros((), device=first.device), torch.ones((), device=first.device)
    there = {index for index, _ in gradients}
    norms = [zero] * size
    pieces = [(index, piece) for index, gradient in gradients for piece in _pieces(gradient)]
    if pieces:
        dtype = torch.float32 if first.dtype in NARROW else None
        each = torch.stack(torch._foreach_norm([piece for _, piece in pieces], 2, dtype=dtype)).float()
        counts = Counter(index for index, _ in pieces)
        for index, norm in zip(counts, torch._foreach_norm(torch.split(each, list(counts.values())), 2), strict=True):
            norms[index] = norm
    return torch.stack([torch.stack(norms).square(), torch.stack([one if index in there else zero for index in range(size)])])


def _pieces(gradient: Tensor) -> Sequence[Tensor]:
    """A gradient in parts: on the CPU, one float32 sum over 20 million entries is off by 1e-3, that of short sums by 1e-6."""
    entries = gradient.numel()
    if entries > PIECE and gradient.is_cpu and gradient.is_contiguous():
        return torch.split(gradient.view(-1), PIECE)
    return (gradient,) if entries else ()


def _unscaled(norm: Tensor, loss_scale: Tensor | float | None) -> Tensor:
    if loss_scale is None:
        return norm
    return norm / (loss_scale.to(norm) if isinstance(loss_scale, Tensor) else loss_scale)


def _nothing(names: tuple[str, ...]) -> str:
    return (
        f"no parameter in {', '.join(names[:3])}{' …' * (len(names) > 3)} has a gradient: backward has not run, the gradients were "
        "cleared or taken by the optimizer, or the model was wrapped after its parameters were grouped"
    )
