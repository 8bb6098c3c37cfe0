"""The pieces of a forward pass that are told apart: what one speaker says in one sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gradwatch.quantities.engines.alignment import by_position, positions, unit_sequences, unit_speakers
from gradwatch.quantities.roles import NOBODY, BatchRoles


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """G pieces of a forward pass in which N sequences lie.

    `speaker_G` and `sequence_G` (int64, on the CPU) are each piece's; a sequence may be `NOBODY`. Where every row of the batch is a
    sequence of one speaker, pieces are rows, and the others None. Else `piece_M` is the piece of each of the batch's positions,
    and `place_GL` are the positions of each piece, filled up with M.
    """

    batch: BatchRoles
    speaker_G: Tensor
    sequence_G: Tensor
    piece_M: Tensor | None = None
    place_GL: Tensor | None = None

    def __len__(self) -> int:
        return len(self.speaker_G)

    def fit(self, lead: torch.Size) -> bool:
        """Whether an input (*lead, d) of a module lines up with the pieces. A pass that is one speaker's has any shape."""
        return len(self) == 1 or positions(self.batch, lead) is not None

    def to(self, device: torch.device) -> Pieces:
        """The same, with its places on a device."""
        if self.piece_M is None or self.place_GL is None or self.piece_M.device == device:
            return self
        piece_M, place_GL = (one.to(device, non_blocking=True) for one in (self.piece_M, self.place_GL))
        return Pieces(self.batch, self.speaker_G, self.sequence_G, piece_M, place_GL)

    def products(self, left_MP: Tensor, right_MQ: Tensor) -> Tensor:
        """Σ over the positions of each piece of the outer product of two rows: float32 (G, P, Q)."""
        left_GLP, right_GLQ = (self._laid_out(one.float()) for one in (left_MP, right_MQ))
        return left_GLP.mT @ right_GLQ

    def totals(self, values_MD: Tensor, weight_M: Tensor | None = None) -> Tensor:
        """Σ over the positions of each piece of a row, times its weight where one is given: float32 (G, D)."""
        values_MD = values_MD.float()
        if self.piece_M is not None and len(self) > 1:
            weighed_MD = values_MD if weight_M is None else values_MD * weight_M[:, None]
            return values_MD.new_zeros(len(self), values_MD.shape[1]).index_add_(0, self.piece_M, weighed_MD)
        weight = values_MD.new_ones(len(values_MD)) if weight_M is None else weight_M
        return (weight.view(len(self), 1, -1) @ values_MD.reshape(len(self), -1, values_MD.shape[1])).squeeze(1)

    def _laid_out(self, values_MD: Tensor) -> Tensor:
        if self.place_GL is None or len(self) == 1:
            return values_MD.reshape(len(self), -1, values_MD.shape[1])
        return torch.cat([values_MD, values_MD.new_zeros(1, values_MD.shape[1])])[self.place_GL]


def pieces_of(batch: BatchRoles, speakers: int) -> Pieces:
    """The pieces of a batch; the unassigned speaker is `speakers - 1`."""
    if not batch.rows:
        return Pieces(batch, batch.speaker_N % speakers, torch.arange(len(batch.speaker_N)))
    speaker_U, sequence_U = unit_speakers(batch, speakers), unit_sequences(batch)
    if not by_position(batch):
        return Pieces(batch, speaker_U, sequence_U)
    key_G, piece_M = torch.unique((sequence_U - NOBODY) * speakers + speaker_U, return_inverse=True)
    sizes = torch.bincount(piece_M, minlength=len(key_G)).tolist()
    places = torch.split(torch.argsort(piece_M, stable=True), sizes)
    place_GL = pad_sequence(list(places), batch_first=True, padding_value=len(piece_M))
    return Pieces(batch, key_G % speakers, key_G // speakers + NOBODY, piece_M, place_GL)
