"""Where the sequences of a micro-batch lie in what the model is given: one to a row, or all packed into one row."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradwatch.quantities.roles import NOBODY


class Sequences(NamedTuple):
    """The sequences of one micro-batch, on the CPU: role ids (B,) or jagged (B, j), lengths (B,), tokens in the loss (B,)."""

    ids: Tensor
    lengths_B: Tensor
    tokens_B: Tensor


class Placed(NamedTuple):
    """Arguments of the watcher's roles: ids (B,) or (R, T), the sequence of each position (R, T) or None, and the loss's tokens."""

    ids: Tensor
    sequences: Tensor | None
    mask: Tensor


def place(found: Sequences, rows: int, width: int) -> Placed | None:
    """The roles of `found` in a model's input of shape (rows, width); None where they cannot lie there, as parts of a sequence do.

    A packed row may be longer than its sequences: the rest is padding. Its `mask` has each sequence's tokens at its first position.
    """
    count, total = len(found.lengths_B), int(found.lengths_B.sum())
    if rows == count and rows > 1:
        ids = torch.nested.to_padded_tensor(found.ids, NOBODY, (rows, width)) if found.ids.is_nested else found.ids
        return Placed(ids, None, found.tokens_B)
    if rows != 1 or total > width:
        return None
    ids_N = found.ids.values() if found.ids.is_nested else found.ids.repeat_interleave(found.lengths_B)
    sequence_N = torch.arange(count).repeat_interleave(found.lengths_B)
    mask_1T = torch.zeros(1, width)
    mask_1T[0, found.lengths_B.cumsum(0) - found.lengths_B] = found.tokens_B.float()
    return Placed(_fill(ids_N, width), _fill(sequence_N, width), mask_1T)


def lengths_of(input_ids: Any) -> Tensor:
    """The lengths (B,) of jagged sequences, on the CPU."""
    offsets: Tensor = input_ids.offsets()
    return offsets.diff().cpu()


def tokens_of(mask: Tensor) -> Tensor:
    """How many tokens (B,) of each sequence a loss mask keeps, on the CPU; it is jagged or padded."""
    rows = mask.unbind() if mask.is_nested else mask
    return torch.stack([row.sum() for row in rows]).cpu()


def _fill(values_N: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(values_N, (0, width - len(values_N)), value=NOBODY)[None]
