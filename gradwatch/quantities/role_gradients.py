"""Gradients of roles: norms, shares, cosines and coherence, from the Gram matrix of the speakers' gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan, sqrt

import torch
from torch import Tensor

from gradwatch.quantities.roles import Speaker


@dataclass(frozen=True, slots=True, eq=False)
class RoleGradReading:
    """What an engine measured of one optimizer step, on the device.

    `gram_KK` (float32 or float64) holds ⟨g_k, g_l⟩ of the K speakers, of the unscaled gradients over the parameters that the engine
    covers. `covered` are their indices among the parameters that are measured. `norm_error` bounds the relative error of a norm,
    `cosine_error` the error of a cosine: numbers where theory gives them, 0-dimensional tensors where they were estimated.
    `influence_N` is ⟨g_i, g⟩/‖g‖² of each sequence of this process in the order in which it was given, and `squares_N` is ‖g_i‖²,
    unscaled; None where the engine does not see single sequences.
    """

    engine: str
    gram_KK: Tensor
    covered: frozenset[int]
    norm_error: Tensor | float
    cosine_error: Tensor | float
    influence_N: Tensor | None = None
    squares_N: Tensor | None = None
    by_position: bool = False


@dataclass(frozen=True)
class RoleGradients:
    """The gradients of a step's roles, as numbers. NaN and infinities are kept.

    `gram` is symmetric, row and column k for `speakers[k]`. `coverage` is the share of ‖g‖² in the parameters that the engine saw.
    `counts` is how much each speaker added: tokens that enter the loss where a mask was given, else sequences. `influence` and
    `squares` are of each sequence of this process, empty where the engine does not see single ones.
    """

    engine: str
    speakers: tuple[Speaker, ...]
    gram: tuple[tuple[float, ...], ...]
    coverage: float = nan
    norm_error: float = 0.0
    cosine_error: float = 0.0
    counts: tuple[float, ...] = ()
    influence: tuple[float, ...] = ()
    squares: tuple[float, ...] = ()
    by_position: bool = False

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The named roles that have a count above 0, or a gradient, in the speakers' order."""
        there = [
            speaker.role for k, speaker in enumerate(self.speakers) if self.gram[k][k] != 0 or (self.counts and self.counts[k])
        ]
        return tuple(role for role in dict.fromkeys(there) if role)

    def norm(self, role: str, agent: str | None = None) -> float:
        """‖g_k‖₂ of a role, or of one instance of it."""
        return _root(self._sum(self._of(role, agent), self._of(role, agent)))

    def norm_per_share(self, role: str) -> float:
        """‖g_k‖·N/n_k: the norm if all tokens were the role's own; a mean over tokens makes small roles look weak."""
        counted = sum(self.counts[k] for k in self._of(role)) if self.counts else 0.0
        return self.norm(role) * sum(self.counts) / counted if counted else nan

    def share(self, role: str) -> float:
        """⟨g_k, g⟩/‖g‖²: sums to 1 over the roles (and what no role was given), may be negative."""
        everyone = range(len(self.speakers))
        whole = self._sum(everyone, everyone)
        return self._sum(self._of(role), everyone) / whole if whole else nan

    def cosine(self, role: str, other: str) -> float:
        """⟨g_k, g_l⟩/(‖g_k‖·‖g_l‖), NaN where one of them is 0."""
        sizes = self.norm(role) * self.norm(other)
        return self._sum(self._of(role), self._of(other)) / sizes if sizes else nan

    def instances(self, role: str) -> int:
        """How many instances of a role have a gradient."""
        return sum(self.gram[k][k] != 0 for k in self._of(role))

    def coherence(self, role: str) -> float:
        """‖Σg‖²/Σ‖g‖² over the instances of a role: 1 where they are independent, their number where they are aligned."""
        own = self._of(role)
        parts = sum(self.gram[k][k] for k in own)
        return self._sum(own, own) / parts if parts else nan

    def _of(self, role: str, agent: str | None = None) -> list[int]:
        return [k for k, one in enumerate(self.speakers) if one.role == role and agent in (None, one.agent)]

    def _sum(self, rows: Sequence[int], columns: Sequence[int]) -> float:
        return sum(self.gram[k][j] for k in rows for j in columns)


def gram_of(sketch_KR: Tensor) -> Tensor:
    """⟨C_k, C_l⟩ of K vectors, accumulated in float64 (float32 where the device has no float64): (K, K)."""
    wide = sketch_KR if sketch_KR.device.type == "mps" else sketch_KR.double()
    return wide @ wide.T


def _root(square: float) -> float:
    # A square that a sketch made slightly negative is 0; NaN stays NaN.
    return sqrt(square) if square > 0 or isnan(square) else 0.0


def stack_numbers(*parts: Tensor | float, device: torch.device) -> Tensor:
    """Tensors and numbers of any shape as one float64 vector on one device, to be read with one host sync."""
    kind = torch.float32 if device.type == "mps" else torch.float64
    return torch.cat([torch.as_tensor(part, device=device).detach().to(kind).reshape(-1) for part in parts])
