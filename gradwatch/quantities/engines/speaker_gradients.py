"""What each speaker adds to a weight's gradient, from a module's input and the gradient of its output. Pure, no host syncs.

For a linear map W_k = Y_kᵀX_k over the rows of speaker k, and the weight's gradient is Σ_k W_k. What is kept of the W_k, whose size
is K times the weight's, is one of: all of it (small weights); their inner products ⟨W_k, W_l⟩; their CountSketches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from gradwatch.quantities.engines.grouping import Grouping, gather, runs, slices, speakers
from gradwatch.quantities.engines.scratch import scratch
from gradwatch.quantities.parameter_sketch import add_signed_

# Entries of the W_k held at a time: a language model's head would otherwise add K times its size to the peak of memory.
BLOCK = {"cpu": 1 << 21}
LARGE_BLOCK = 1 << 24  # of a device, where many small products are slow


class Signs(NamedTuple):
    """`ParameterSketch.signs` of one parameter."""

    a: Tensor
    b: Tensor
    offset: int


class Wanted(NamedTuple):
    """What is to be kept: the W_k, their Gram matrix, their sketches of width m (0: none), their sum."""

    dense: bool = False
    gram: bool = False
    width: int = 0
    total: bool = False


class Kept(NamedTuple):
    """What was asked for, else None: `own` is (K, numel) where dense, (K, K) where Gram; `sketch` is (K, m); float32."""

    own: Tensor | None = None
    sketch: Tensor | None = None
    total: Tensor | None = None


def of_linear(gy_MO: Tensor, x_MI: Tensor, grouping: Grouping, signs: Signs, wanted: Wanted) -> Kept:
    """The W_k of a weight (O, I); `total` has the dtype of `gy`. The products are computed in the dtype of `gy`."""
    if _is_low_rank(gy_MO, x_MI, grouping, wanted):
        return Kept(own=_by_unit(gy_MO, x_MI, grouping))
    # Rounded between products, a narrow dtype would lose what one product keeps.
    every = runs(grouping, len(gy_MO)) if gy_MO.dtype == torch.float32 else None
    if every is None:
        every = [[span] for span in slices(grouping, len(gy_MO))]
        gy_MO, x_MI = gather(gy_MO, grouping), gather(x_MI, grouping)
    there = [k for k, own in enumerate(every) if any(span.start < span.stop for span in own)] or [0]
    x_MI = x_MI.to(gy_MO.dtype)
    kept = _empty(len(there), gy_MO, x_MI.shape[1], wanted)
    for rows, blocks_KN in _blocks(gy_MO, x_MI, [every[k] for k in there]):
        _keep(kept, blocks_KN, rows, signs, wanted)
    return kept if len(there) == len(every) else _with_silent(kept, there, len(every), wanted)


def _is_low_rank(gy_MO: Tensor, x_MI: Tensor, grouping: Grouping, wanted: Wanted) -> bool:
    """Whether the products of all units take less room than rows that are brought into the speakers' order."""
    units = int(grouping.bounds[-1])
    return (
        wanted.dense
        and not (wanted.total or wanted.width)
        and units * gy_MO.shape[1] * x_MI.shape[1] < max(gy_MO.numel(), x_MI.numel())
    )


def _by_unit(gy_MO: Tensor, x_MI: Tensor, grouping: Grouping) -> Tensor:
    """The W_k, as sums of the units' own products: (K, numel), float32."""
    units = int(grouping.bounds[-1])
    gy_UTO, x_UTI = (rows.reshape(units, -1, rows.shape[1]) for rows in (gy_MO, x_MI.to(gy_MO.dtype)))
    # A product with few rows is about twice as fast as one with few columns.
    is_tall = gy_UTO.shape[2] > x_UTI.shape[2]
    products_UOI = torch.bmm(x_UTI.mT, gy_UTO).mT if is_tall else torch.bmm(gy_UTO.mT, x_UTI)
    products_UN = products_UOI.float().flatten(1)
    sums_KN = products_UN.new_zeros(len(grouping.bounds) - 1, products_UN.shape[1])
    return sums_KN.index_add_(0, speakers(grouping).to(sums_KN.device, non_blocking=True), products_UN)


def _with_silent(kept: Kept, there: list[int], speakers: int, wanted: Wanted) -> Kept:
    """What was kept of the speakers that have rows, with zeros for the others."""

    def widened(values: Tensor) -> Tensor:
        wide = values.new_zeros(speakers, *values.shape[1:])
        # A list makes an index of tensors; most often only the unassigned speaker, the last, is silent.
        wide[slice(len(there)) if there[-1] < len(there) else there] = values
        return wide

    own, sketch, total = kept
    own = own if own is None else widened(own) if wanted.dense else widened(widened(own).T)
    return Kept(own, None if sketch is None else widened(sketch), total)


def of_scale(product_MD: Tensor, grouping: Grouping, scale_M: Tensor | None = None) -> Tensor:
    """Each speaker's sum over its rows, each times its `scale`: (K, D), float32. The gradient of a bias or of a norm's weight."""
    every = runs(grouping, len(product_MD))
    if every is None:
        every = [[span] for span in slices(grouping, len(product_MD))]
        product_MD = gather(product_MD, grouping)
        scale_M = scale_M if scale_M is None else gather(scale_M[:, None], grouping)[:, 0]
    sums_KD = product_MD.new_zeros(len(every), product_MD.shape[1], dtype=torch.float32)
    for k, own in enumerate(every):
        for span in own:
            rows_MD = product_MD[span]
            sums_KD[k] += rows_MD.sum(0, dtype=torch.float32) if scale_M is None else scale_M[span] @ rows_MD
    return sums_KD


def of_embedding(gy_MD: Tensor, tokens_M: Tensor, grouping: Grouping, signs: Signs, vocabulary: int, wanted: Wanted) -> Kept:
    """The W_k of an embedding's weight (V, D): the rows of `gy` added up for each speaker and token."""
    spans = slices(grouping, len(gy_MD))
    gy_MD, tokens_M = gather(gy_MD, grouping).float(), gather(tokens_M[:, None], grouping)[:, 0]
    if wanted.dense:
        rows = torch.cat([tokens_M[span] + k * vocabulary for k, span in enumerate(spans)])
        return Kept(_added(gy_MD, rows, len(spans) * vocabulary).view(len(spans), -1))
    own = _token_gram(gy_MD, tokens_M, spans) if wanted.gram else None
    sketch = _token_sketch(gy_MD, tokens_M, spans, signs, wanted.width) if wanted.width else None
    return Kept(own, sketch)


def _empty(speakers: int, gy_MO: Tensor, columns: int, wanted: Wanted) -> Kept:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device=gy_MO.device)

    own = zeros(speakers, gy_MO.shape[1] * columns) if wanted.dense else zeros(speakers, speakers) if wanted.gram else None
    sketch = zeros(speakers, wanted.width) if wanted.width else None
    return Kept(own, sketch, gy_MO.new_empty(gy_MO.shape[1], columns) if wanted.total else None)


def _blocks(gy_MO: Tensor, x_MI: Tensor, spans: Sequence[Sequence[slice]]) -> Iterator[tuple[slice, Tensor]]:
    """The W_k, some rows of them at a time: which rows, and (K, rows, I), valid until the next."""
    outputs, columns = gy_MO.shape[1], x_MI.shape[1]
    most = max(1, BLOCK.get(gy_MO.device.type, LARGE_BLOCK) // max(1, len(spans) * columns))
    step = ceil(outputs / ceil(outputs / most))
    held = scratch(gy_MO, len(spans) * step * columns)
    for first in range(0, outputs, step):
        rows = slice(first, min(first + step, outputs))
        block = held[: len(spans) * (rows.stop - first) * columns].view(len(spans), -1, columns)
        for product, (span, *more) in zip(block, spans, strict=True):
            torch.mm(gy_MO[span, rows].T, x_MI[span], out=product)
            for one in more:
                product.addmm_(gy_MO[one, rows].T, x_MI[one])
        yield rows, block


def _keep(kept: Kept, blocks_KRI: Tensor, rows: slice, signs: Signs, wanted: Wanted) -> None:
    wide = blocks_KRI.float()
    flat_KN = wide.view(len(wide), -1)
    if kept.total is not None and kept.total.dtype == wide.dtype:
        torch.sum(wide, 0, out=kept.total[rows])
    elif kept.total is not None:
        kept.total[rows] = wide.sum(0)
    if kept.own is not None and wanted.dense:
        kept.own.view(len(wide), -1, wide.shape[2])[:, rows] = wide
    elif kept.own is not None:
        kept.own.addmm_(flat_KN, flat_KN.T)
    if kept.sketch is not None:
        for sketch_m, block_RI in zip(kept.sketch, wide, strict=True):
            add_signed_(sketch_m, block_RI, signs.a, signs.b, signs.offset, rows.start)


def _token_gram(gy_MD: Tensor, tokens_M: Tensor, spans: Sequence[slice]) -> Tensor:
    """⟨W_k, W_l⟩ of an embedding. Tokens are ranked without `torch.unique`, which would wait for the device."""
    speakers, width = len(spans), gy_MD.shape[1]
    ordered, order = tokens_M.sort()
    ranks = torch.cat([ordered.new_zeros(1), (ordered[1:] != ordered[:-1]).long().cumsum(0)])
    rank = torch.zeros_like(tokens_M)
    rank[order] = ranks
    size = int(ranks[-1]) + 1 if ranks.device.type == "cpu" else len(ranks)
    rows = torch.cat([rank[span] + k * size for k, span in enumerate(spans)])
    gram = gy_MD.new_zeros(speakers, speakers)
    step = max(1, BLOCK.get(gy_MD.device.type, LARGE_BLOCK) // (speakers * size))
    for first in range(0, width, step):
        part_KN = _added(gy_MD[:, first : first + step], rows, speakers * size).view(speakers, -1)
        gram.addmm_(part_KN, part_KN.T)
    return gram


def _token_sketch(gy_MD: Tensor, tokens_M: Tensor, spans: Sequence[slice], signs: Signs, width: int) -> Tensor:
    columns = gy_MD.shape[1]
    starts = torch.cat([(signs.offset + tokens_M[span] * columns) % width + k * (width + columns) for k, span in enumerate(spans)])
    places = starts[:, None] + torch.arange(columns, device=starts.device)
    signed = (gy_MD * signs.a[tokens_M, None]).mul_(signs.b)
    flat = _added(signed.view(-1), places.view(-1), len(spans) * (width + columns))
    return _wrapped(flat.view(len(spans), -1), width)


def _wrapped(long_KN: Tensor, width: int) -> Tensor:
    """Buckets beyond the width are the first ones again."""
    sketch = long_KN[:, :width].contiguous()
    for first in range(width, long_KN.shape[1], width):
        rest = long_KN[:, first : first + width]
        sketch[:, : rest.shape[1]] += rest
    return sketch


def _added(values: Tensor, places: Tensor, size: int) -> Tensor:
    return values.new_zeros(size, *values.shape[1:]).index_add_(0, places, values)
