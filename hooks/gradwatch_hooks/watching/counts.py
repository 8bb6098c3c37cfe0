"""How much each speaker adds to a batch: tokens that enter the loss where a mask says so, else sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.roles import NOBODY, BatchRoles


def count_speakers(batch: BatchRoles, size: int, mask: Tensor | None) -> Tensor:
    """Counts of shape (size,), float32; what has no speaker is the last one's. `mask`: (B, T) or, in tokens, (B,).

    On the mask's device, without waiting for it. Raises SettingsError where the mask does not fit the roles.
    """
    if mask is None:
        return torch.bincount(_filled(batch.speaker_N, size), minlength=size).float()
    mask = torch.as_tensor(mask).detach()
    if not len(batch.speaker_N):
        return torch.zeros(size, device=mask.device)
    if not batch.rows:
        counts = torch.zeros(size, device=mask.device)
        counts[int(batch.speaker_N[0])] = mask.sum(dtype=torch.float32)
        return counts
    if mask.shape[:1] != (batch.rows,) or mask.dim() > 2:
        raise SettingsError(
            f"mask of shape {tuple(mask.shape)} for {batch.rows} rows of roles: give (B, T), or tokens of shape (B,)"
        )
    speakers = _of_positions(batch, mask, size)
    counts = torch.zeros(size, device=mask.device)
    return counts.index_add_(0, speakers.reshape(-1).to(mask.device, non_blocking=True), mask.reshape(-1).float())


def _of_positions(batch: BatchRoles, mask: Tensor, size: int) -> Tensor:
    """The speaker of each entry of a mask."""
    positions = batch.speaker_BT if batch.speaker_BT is not None else batch.sequence_BT
    if positions is None:
        speakers_B = _filled(batch.speaker_N, size)
        return speakers_B if mask.dim() == 1 else speakers_B[:, None].expand(mask.shape)
    if positions.shape != mask.shape:
        raise SettingsError(f"mask of shape {tuple(mask.shape)} beside roles or sequences of shape {tuple(positions.shape)}")
    if batch.speaker_BT is not None:
        return _filled(batch.speaker_BT, size)
    of_sequence = _filled(torch.cat([batch.speaker_N, batch.speaker_N.new_full((1,), NOBODY)]), size)
    return of_sequence[positions]


def _filled(speakers: Tensor, size: int) -> Tensor:
    return torch.where(speakers == NOBODY, size - 1, speakers)
