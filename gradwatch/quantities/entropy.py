"""Entropy of the policy, from logits in chunks or from what the training has computed already."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradwatch.quantities.per_role import RoleReading, mean_by_role, reading_of
from gradwatch.quantities.policy_tokens import PolicyTokens

# Entries of logits that are worked on at a time, each twice in memory as float32.
CHUNK = {"cpu": 1 << 20, "cuda": 1 << 25}


def measure_entropy(tokens: PolicyTokens, entropies: Tensor) -> RoleReading:
    """`entropy` by role: the mean over its tokens of −Σ p log p, in nats; NaN where a token's is NaN."""
    return reading_of({"entropy": mean_by_role(tokens.flat(entropies, "entropies"), tokens.owners)}, tokens.owners)


@torch.no_grad()
def entropy_of_logits(logits: Tensor, temperature: float = 1.0, rows: int | None = None) -> Tensor:
    """−Σ p log p in nats over the last axis of logits (..., V): (...), float32, or float64 where the logits are.

    p = softmax(logits / temperature). `rows` rows are worked on at a time, so that no second tensor of the logits' size is made,
    also where they are a slice. A logit of −Inf is a token of probability 0, and adds nothing; NaN and +Inf make NaN.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    rows = rows or max(1, CHUNK.get(logits.device.type, CHUNK["cuda"]) // max(1, logits.shape[-1]))
    found = [_entropy(block, temperature, dtype) for block in _blocks(logits.detach(), rows)]
    return torch.cat(found).view(logits.shape[:-1]) if found else logits.new_zeros(logits.shape[:-1], dtype=dtype)


def _blocks(logits: Tensor, rows: int) -> Iterator[Tensor]:
    """Views of (rows, V) in the order of the flattened rows: a slice is not flattened, which would copy it."""
    if logits.dim() > 2 and not logits.is_contiguous():
        for part in logits.unbind(0):
            yield from _blocks(part, rows)
    elif logits.numel():
        yield from torch.split(logits.reshape(-1, logits.shape[-1]), rows)


def _entropy(logits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    scaled = logits.to(dtype) if temperature == 1 else logits.to(dtype) / temperature
    chances = torch.softmax(scaled, -1)
    torch.special.entr(chances, out=chances)
    return chances.sum(-1)
