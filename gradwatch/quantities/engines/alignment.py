"""Which speaker each row of a module's input belongs to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gradwatch.quantities.roles import NOBODY, BatchRoles


class Alignment(NamedTuple):
    """The speaker and the sequence of each of the M rows of an input (*lead, d), M = lead.numel(): int64, on its device.

    A row without a speaker belongs to the last one, the unassigned; its sequence may be `NOBODY`, such as where rows are packed
    and the position is padding. `rows` is B where every row of the batch is a whole sequence, of M/B positions one after the
    other, else None.
    """

    speaker_M: Tensor
    sequence_M: Tensor
    rows: int | None


class Alignments:
    """The alignments of one forward pass, one for each shape and device that its modules see."""

    def __init__(self, batch: BatchRoles, speakers: int) -> None:
        self.batch = batch
        self._speakers = speakers
        self._made: dict[tuple[torch.Size, torch.device], Alignment | None] = {}

    def of(self, lead: torch.Size, device: torch.device) -> Alignment | None:
        """`align` of the pass's batch, computed once for each shape and device."""
        key = lead, device
        if key not in self._made:
            self._made[key] = align(self.batch, lead, self._speakers, device)
        return self._made[key]


def positions(batch: BatchRoles, lead: torch.Size) -> int | None:
    """How many rows of an input (*lead, d) belong to each unit of the batch, None where they do not line up.

    The units are the B rows where each is one sequence: then `lead` begins with B, or is M positions in the order of the rows, a
    multiple of B. Else they are the B·T positions, all of which must be there.
    """
    units = unit_count(batch)
    size = lead.numel()
    if not units or not size or not lead:
        return None
    if by_position(batch):
        return 1 if size == units else None
    return size // units if lead[0] == units or (len(lead) == 1 and size % units == 0) else None


def by_position(batch: BatchRoles) -> bool:
    """Whether speakers are told apart by position: rows are packed, or several speak in one sequence."""
    return batch.sequence_BT is not None or batch.speaker_BT is not None


def unit_count(batch: BatchRoles) -> int:
    """The rows of a batch, or its positions where `by_position`."""
    for grid_BT in (batch.sequence_BT, batch.speaker_BT):
        if grid_BT is not None:
            return grid_BT.numel()
    return batch.rows


def unit_speakers(batch: BatchRoles, speakers: int) -> Tensor:
    """The speaker of each unit of the batch, int64 on the CPU; the unassigned one is `speakers - 1`."""
    if batch.speaker_BT is not None:
        found = batch.speaker_BT.reshape(-1)
    elif batch.sequence_BT is not None:
        found = _of_sequence(batch.speaker_N, batch.sequence_BT.reshape(-1))
    else:
        found = batch.speaker_N
    return torch.where(found == NOBODY, speakers - 1, found)


def unit_sequences(batch: BatchRoles) -> Tensor:
    """The sequence of each unit of the batch, int64 on the CPU; `NOBODY` for padding between packed sequences."""
    if batch.sequence_BT is not None:
        return batch.sequence_BT.reshape(-1)
    if batch.speaker_BT is not None:
        rows, length = batch.speaker_BT.shape
        return torch.arange(rows).repeat_interleave(length)
    return torch.arange(batch.rows)


def align(batch: BatchRoles, lead: torch.Size, speakers: int, device: torch.device) -> Alignment | None:
    """The speaker of each row of an input (*lead, d) on `device`; None where its shape does not line up with the batch."""
    each = positions(batch, lead)
    if each is None:
        return None
    speaker_M, sequence_M = (
        unit_U.repeat_interleave(each).to(device, non_blocking=True)
        for unit_U in (unit_speakers(batch, speakers), unit_sequences(batch))
    )
    return Alignment(speaker_M, sequence_M, None if by_position(batch) else batch.rows)


def _of_sequence(speaker_N: Tensor, sequence_M: Tensor) -> Tensor:
    padded = torch.cat([speaker_N, torch.full((1,), NOBODY)])
    return padded[sequence_M]  # NOBODY is -1: the last
