"""Who speaks in one forward pass: the speaker of each sequence, whatever the shape in which the user says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradwatch.errors import SettingsError

NOBODY = -1


class Speaker(NamedTuple):
    """A role, and the instance of it where it has several. The nameless speaker stands for sequences that no role was given."""

    role: str
    agent: str = ""


UNASSIGNED = Speaker("")


@dataclass(frozen=True, slots=True, eq=False)
class BatchRoles:
    """The speakers of one forward pass over B rows, in which N sequences lie; `rows` 0: any number of rows, all one speaker's.

    `speaker_N` (int64, on the CPU) is each sequence's speaker, an index into the speakers of the watcher. Where every row is one
    sequence, `sequence_BT` is None and N = B (1 where `rows` is 0). Packed rows have it: (B, T), int64, on the CPU, the sequence of
    each position.
    `speaker_BT` is set, and nothing else can be said than by position, where several roles speak in one sequence: (B, T), int64,
    on the CPU, the speaker of each position, `NOBODY` where none was given.
    """

    rows: int
    speaker_N: Tensor
    sequence_BT: Tensor | None = None
    speaker_BT: Tensor | None = None

    @property
    def is_mixed_within(self) -> bool:
        """Whether several roles speak in one sequence."""
        return self.speaker_BT is not None

    @property
    def only_speaker(self) -> int | None:
        """The one speaker of every sequence, None where there are several."""
        if self.speaker_BT is not None or not len(self.speaker_N):
            return None
        first = int(self.speaker_N[0])
        return first if bool((self.speaker_N == first).all()) else None


def assign_roles(ids: Tensor | Sequence[Any], size: int, sequences: Tensor | None = None) -> BatchRoles:
    """Read role ids: (B,), one for each sequence, or (B, T), one for each position; whole numbers below `size`, -1 for none.

    A row of (B, T) whose ids name one speaker beside -1 (a prompt, padding) is a sequence of that speaker: with the gradient of
    its loss flows what its prompt adds. `sequences` (B, T) tells sequences that were packed into one row apart, by any numbers
    that differ from one to the next in a row; -1 is padding. Read on the CPU: a tensor on a device costs a host sync.

    Raises SettingsError where shapes, types or ids are wrong.
    """
    ids = torch.as_tensor(ids).detach().to("cpu")
    if ids.dim() not in (1, 2) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise SettingsError(f"role ids of shape {tuple(ids.shape)} and {ids.dtype}: give whole numbers of shape (B,) or (B, T)")
    ids = ids.long()
    if ids.numel() and not -1 <= int(ids.min()) <= int(ids.max()) < size:
        raise SettingsError(
            f"role ids from {int(ids.min())} to {int(ids.max())}: {size} names make ids from 0 to {size - 1}, -1 for none"
        )
    if sequences is not None:
        return _packed(ids, sequences.detach().to("cpu").long())
    if ids.dim() == 1:
        return BatchRoles(len(ids), ids)
    speaker_B, is_one_B = _of_rows(ids)
    if bool(is_one_B.all()):
        return BatchRoles(len(ids), speaker_B)
    return BatchRoles(len(ids), torch.where(is_one_B, speaker_B, NOBODY), speaker_BT=ids)


def _of_rows(ids_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The largest id of each row, and whether it is the only one beside -1."""
    if not ids_BT.shape[1]:
        return torch.full((len(ids_BT),), NOBODY), torch.ones(len(ids_BT), dtype=torch.bool)
    largest_B = ids_BT.amax(1)
    return largest_B, ((ids_BT == largest_B[:, None]) | (ids_BT == NOBODY)).all(1)


def _packed(ids: Tensor, sequences_BT: Tensor) -> BatchRoles:
    if ids.dim() != 2 or ids.shape != sequences_BT.shape:
        raise SettingsError(f"sequences of shape {tuple(sequences_BT.shape)} need role ids of that shape, not {tuple(ids.shape)}")
    rows = torch.arange(len(ids))[:, None].expand_as(ids)
    keys = torch.stack([rows.reshape(-1), sequences_BT.reshape(-1)], 1)
    there = keys[:, 1] != NOBODY
    _, inverse = torch.unique(keys[there], dim=0, return_inverse=True)
    count = int(inverse.max()) + 1 if len(inverse) else 0
    sequence = torch.full((ids.numel(),), NOBODY)
    sequence[there] = inverse
    spoken = there & (ids.reshape(-1) != NOBODY)
    lowest = torch.full((count,), torch.iinfo(torch.int64).max).scatter_reduce(0, sequence[spoken], ids.reshape(-1)[spoken], "amin")
    highest = torch.full((count,), NOBODY).scatter_reduce(0, sequence[spoken], ids.reshape(-1)[spoken], "amax")
    if bool((lowest < highest).any()):
        return BatchRoles(len(ids), torch.where(lowest < highest, NOBODY, highest), sequence.view_as(ids), speaker_BT=ids)
    return BatchRoles(len(ids), highest, sequence.view_as(ids))
