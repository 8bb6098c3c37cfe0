"""Sketching a gradient in whatever form autograd or a framework leaves it: dense, sparse, or a shard of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from gradwatch.quantities.parameter_sketch import ParameterSketch
from gradwatch.quantities.sharding import is_dtensor


def sketch_gradient_(sketch_m: Tensor, sketch: ParameterSketch, index: int, parameter: nn.Parameter, gradient: Tensor) -> None:
    """Add a gradient of `parameter`, the sketch's `index`-th, to a float32 sketch of shape (m,) in place.

    Of a sparse gradient only the rows that are there are read. Of a DTensor the entries that this process holds are added, at
    their place in the whole: over the processes that share the parameter, sketches add up.
    """
    if is_dtensor(gradient):
        if not is_dtensor(parameter):
            sketch.add_(sketch_m, index, gradient.full_tensor())
            return
        # A partial gradient is no sum yet: it takes its parameter's placement first.
        if gradient.placements != parameter.placements:
            gradient = gradient.redistribute(placements=parameter.placements)
        _add_shard_(sketch_m, sketch, index, gradient)
    elif gradient.layout is torch.sparse_coo:
        merged = gradient.coalesce()
        rows, values = merged.indices()[0], merged.values()
        entries = values.reshape(len(rows), -1)
        _add_entries_(sketch_m, sketch, index, entries, rows, torch.arange(entries.shape[1], device=rows.device))
    else:
        sketch.add_(sketch_m, index, gradient)


def _add_shard_(sketch_m: Tensor, sketch: ParameterSketch, index: int, gradient: DTensor) -> None:
    local = gradient.to_local()
    if not local.numel():
        return
    _, (first, *others) = compute_local_shape_and_global_offset(gradient.shape, gradient.device_mesh, gradient.placements)
    if local.shape[1:] == gradient.shape[1:]:
        sketch.add_(sketch_m, index, local, row=first)
        return
    column = torch.arange(gradient.shape[1:].numel(), device=local.device).view(gradient.shape[1:])
    for axis, offset in enumerate(others):
        column = column.narrow(axis, offset, local.shape[axis + 1])
    rows = torch.arange(first, first + len(local), device=local.device)
    _add_entries_(sketch_m, sketch, index, local.reshape(len(local), -1), rows, column.reshape(-1))


def _add_entries_(
    sketch_m: Tensor, sketch: ParameterSketch, index: int, entries_RC: Tensor, row_R: Tensor, column_C: Tensor
) -> None:
    """`ParameterSketch.add_` of entries whose buckets are not consecutive."""
    a, b, offset = sketch.signs(index, entries_RC.device)
    bucket_RC = (offset + row_R[:, None] * len(b) + column_C) % len(sketch_m)
    sketch_m.index_add_(0, bucket_RC.reshape(-1), (entries_RC.float() * a[row_R, None] * b[column_C]).reshape(-1))
