"""A language model small enough to take the gradient of each role's loss apart, and its slow twin that does so."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

TOKENS, SEQUENCES, WORDS = 6, 8, 11


class Speaking(nn.Module):
    """A language model of one layer."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(WORDS, 12)
        self.norm = nn.LayerNorm(12)
        self.mix = nn.Linear(12, 12)
        self.head = nn.Linear(12, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.norm(self.embed(ids))
        return self.head(torch.tanh(self.mix(hidden.cumsum(1))))


def tokens(number: int) -> Tensor:
    return torch.randint(WORDS, (SEQUENCES, TOKENS), generator=torch.Generator().manual_seed(number))


def losses(model: nn.Module, ids: Tensor) -> Tensor:
    """Of each position but the last: (B, T - 1)."""
    logits = model(ids)[:, :-1]
    return nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def true_gram(model: nn.Module, parts: Sequence[Tensor]) -> Tensor:
    """⟨g_k, g_l⟩ by a backward for each part of the loss, in float64."""
    flat = []
    for part in parts:
        gradients = torch.autograd.grad(part, list(model.parameters()), retain_graph=True, allow_unused=True)
        flat.append(
            torch.cat(
                [
                    torch.zeros(one.numel()) if got is None else got.reshape(-1)
                    for one, got in zip(model.parameters(), gradients, strict=True)
                ]
            )
        )
    stacked = torch.stack(flat).double()
    return stacked @ stacked.T
