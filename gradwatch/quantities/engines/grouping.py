"""The rows of a module's input by speaker: as slices where they lie together, gathered once where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from gradwatch.quantities.engines.alignment import unit_speakers
from gradwatch.quantities.roles import BatchRoles

LONG = 128  # rows of a unit, from which on a product for each is as quick as one of all


class Grouping(NamedTuple):
    """The U units of a batch (its rows, or its positions) in the order of their speakers.

    `bounds` (int64 of shape (K + 1,), on the CPU, so that reading it waits for no device): speaker k's units are those from
    `bounds[k]` to `bounds[k + 1]` of the units taken in `order` (int64, on the device; empty where they lie so already).
    """

    order: Tensor
    bounds: Tensor

    def to(self, device: torch.device) -> Grouping:
        """The same, its order on a device."""
        return self if self.order.device == device else Grouping(self.order.to(device, non_blocking=True), self.bounds)


def group_units(batch: BatchRoles, speakers: int) -> Grouping:
    """The units of a batch grouped by speaker, on the CPU."""
    speaker_U = unit_speakers(batch, speakers)
    counts = torch.bincount(speaker_U, minlength=speakers)
    bounds = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    is_sorted = bool((speaker_U[1:] >= speaker_U[:-1]).all())
    order = torch.empty(0, dtype=torch.long) if is_sorted else torch.argsort(speaker_U, stable=True)
    return Grouping(order, bounds)


def gather(rows_MD: Tensor, grouping: Grouping) -> Tensor:
    """Rows in the order of their speakers; the rows themselves where they lie so."""
    units = len(grouping.order)
    if not units:
        return rows_MD
    return rows_MD.reshape(units, -1).index_select(0, grouping.order).view(rows_MD.shape)


def speakers(grouping: Grouping) -> Tensor:
    """The speaker of each unit, as the units lie: (U,)."""
    sorted_U = torch.repeat_interleave(grouping.bounds.diff())
    if not len(grouping.order):
        return sorted_U
    return torch.empty_like(grouping.order).scatter_(0, grouping.order, sorted_U.to(grouping.order.device))


def slices(grouping: Grouping, rows: int) -> Sequence[slice]:
    """Where each speaker's rows lie among M gathered ones."""
    bounds = grouping.bounds.tolist()
    each = rows // bounds[-1]
    return [slice(first * each, last * each) for first, last in pairwise(bounds)]


def runs(grouping: Grouping, rows: int) -> list[list[slice]] | None:
    """Where each speaker's rows lie among M rows as they are, one slice after another; None where many short ones would be slow.

    On a device the order is not known without waiting for it: None there.
    """
    units, bounds = len(grouping.order), grouping.bounds.tolist()
    if not units:
        return [[span] for span in slices(grouping, rows)]
    each = rows // units
    if grouping.order.device.type != "cpu" or each < LONG:
        return None
    order = grouping.order.tolist()
    return [[slice(unit * each, (unit + 1) * each) for unit in order[first:last]] for first, last in pairwise(bounds)]
