"""Which of many tensors hold a value that is not finite, with a few kernels and without waiting for a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from gradwatch.quantities.grad_norm import NARROW
from gradwatch.quantities.sharding import is_dtensor


def local_values(tensor: Tensor | None) -> Tensor | None:
    """The values of a tensor that this process holds; None where there are none."""
    if tensor is None:
        return None
    values = tensor.detach()
    if is_dtensor(values):
        values = values.to_local()
    if values.layout is not torch.strided:
        values = values._values() if values.layout is torch.sparse_coo else values.values()
    return values if values.numel() and not values.is_meta else None


def nonfinite_flags(tensors: Sequence[Tensor | None], home: torch.device) -> Tensor:
    """1 for each tensor with a value that is not finite, else 0: float32, (P,)."""
    cells: defaultdict[tuple[torch.device, torch.dtype], dict[int, Tensor]] = defaultdict(dict)
    for index, one in enumerate(tensors):
        if one is not None:
            cells[one.device, one.dtype][index] = one
    flags = [torch.zeros((), device=home)] * len(tensors)
    for cell in cells.values():
        for index, bad in zip(cell, _bad(list(cell.values())).float().to(home).unbind(), strict=True):
            flags[index] = bad
    return torch.stack(flags) if flags else torch.zeros(0, device=home)


def _bad(tensors: list[Tensor]) -> Tensor:
    """Whether each of some tensors, of one device and dtype, has a value that is not finite: bool, (P,)."""
    if not tensors[0].is_cpu:
        return ~torch.stack(torch._foreach_norm(tensors, inf)).isfinite()
    # On the CPU the kernel of the largest value is ten times slower; there, looking again costs no wait.
    norms = torch.stack(torch._foreach_norm(tensors, 2, dtype=torch.float32 if tensors[0].dtype in NARROW else None))
    suspects = (~norms.isfinite()).tolist()
    return torch.tensor([bad and not bool(one.isfinite().all()) for bad, one in zip(suspects, tensors, strict=True)])
