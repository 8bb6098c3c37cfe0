"""Whose token each row of a language model's logits predicts."""

from __future__ import annotations

import torch
from torch import Tensor

from gradwatch.quantities.engines.alignment import by_position, unit_speakers
from gradwatch.quantities.roles import BatchRoles


def predicted_speakers(batch: BatchRoles, speakers: int, logits: int) -> Tensor | None:
    """The speaker of the token that each of M rows of logits predicts: int64 (M,), on the CPU; None where they do not line up.

    Position t predicts token t + 1; what the last one predicts nobody has said: it is the unassigned speaker's, `speakers - 1`.
    Of T positions a model may have left some out: with T - 1 of a row, the last is taken to be missing (a loss that shifts before
    the head); with fewer, the first ones (`logits_to_keep`). Where each sequence has one speaker, so has each of its positions.
    """
    if not batch.rows:
        return (batch.speaker_N % speakers).repeat(logits) if len(batch.speaker_N) == 1 else None
    if logits % batch.rows:
        return None
    kept = logits // batch.rows
    speaker_U = unit_speakers(batch, speakers)
    if not by_position(batch):
        return speaker_U.repeat_interleave(kept)
    speaker_BT = speaker_U.view(batch.rows, -1)
    if batch.speaker_BT is not None:
        nobody_B1 = torch.full((batch.rows, 1), speakers - 1)
        speaker_BT = torch.cat([speaker_BT[:, 1:], nobody_B1], 1)
    length = speaker_BT.shape[1]
    if not 0 < kept <= length:
        return None
    return (speaker_BT[:, :-1] if kept == length - 1 else speaker_BT[:, length - kept :]).reshape(-1)
