"""Token sketch: a short vector for each sequence whose inner products are those of the sequences' gradients, in expectation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isqrt, log2

import torch
from torch import Tensor

from gradwatch.quantities.parameter_sketch import prime_below

ENTRIES = 1 << 16  # of a sequence's vector, at most, for all matrices together
RANK = 32
LEAST_RANK = 4
VECTOR_WIDTH = 4093


class TokenSketch:
    """Sketches of width R: for each of L matrices a block of r·r entries, and one of F for all vectors together.

    A matrix's gradient W is Σ_t y_t x_tᵀ over the tokens t, y_t as long as it has rows and x_t as it has columns. With P (rows, r)
    and Q (columns, r) of signs ±1/√r, drawn anew for each matrix from `seed`, the block is M = Σ_t (Pᵀy_t)(Qᵀx_t)ᵀ = PᵀWQ. It is
    linear: tokens, uses of a tied weight, micro-batches and processes add up; and E⟨M, M′⟩ = ⟨W, W′⟩. It takes no gradient, and
    2r(rows + columns) operations a token. A side of at most r stays as it is: its projection is the identity. Of a vector's
    gradient, entry j goes to bucket (o + j) mod F with a sign of its own.

    For Gaussian P and Q, and less for signs, with B = WᵀW and p, q the variances of their entries (1/r; 0 for an identity),
    Var‖M‖² = 2(p + q + pq)‖B‖² + 2pq‖W‖⁴ in Frobenius norms. Source: random projections (Johnson and Lindenstrauss 1984; Achlioptas
    2003) of both factors.
    """

    def __init__(
        self, matrices: Mapping[int, torch.Size], vectors: Mapping[int, torch.Size], rank: int | None = None, seed: int = 0
    ) -> None:
        self.rank = rank or max(LEAST_RANK, min(RANK, isqrt(ENTRIES // max(1, len(matrices)))))
        self._slots = {index: slot for slot, index in enumerate(matrices)}
        self._shapes = dict(matrices)
        self._seed = seed
        self._placed: dict[tuple[int, bool, torch.device, torch.dtype], Tensor] = {}
        self._fold = prime_below(VECTOR_WIDTH) if vectors else 0
        self.vectors = frozenset(vectors)
        self._vectors = {index: self._drawn_vector(index, shape) for index, shape in vectors.items()}
        self._signs: dict[tuple[int, torch.device], Tensor] = {}

    @property
    def width(self) -> int:
        """R, the length of a sketch."""
        return self._matrix_width + self._fold

    def holds(self, index: int) -> bool:
        """Whether a parameter is sketched."""
        return index in self._slots or index in self._vectors

    def rows(self, index: int, like: Tensor) -> Tensor:
        """P of a matrix, (rows, r), times a power of two, on the device and of the type of another tensor."""
        return self._projection(index, True, like)

    def columns(self, index: int, like: Tensor) -> Tensor:
        """Q of a matrix, (columns, r), times a power of two."""
        return self._projection(index, False, like)

    def add_matrix_(self, sketch_GR: Tensor, index: int, products_GPQ: Tensor) -> None:
        """Add Σ_t (Pᵀy_t)(Qᵀx_t)ᵀ of a matrix, made with `rows` and `columns`, to G sketches in place."""
        size, start = self.rank**2, self._slots[index] * self.rank**2
        rows, columns = (1.0 if side <= self.rank else 1 / (_step(side) * self.rank**0.5) for side in self._shapes[index])
        sketch_GR[:, start : start + size].add_(products_GPQ.flatten(1), alpha=rows * columns)

    def add_vector_(self, sketch_GR: Tensor, index: int, gradient_GD: Tensor) -> None:
        """Add gradients of a vector to G sketches in place."""
        signs, offset = self._vectors[index]
        signs = self._signs.setdefault((index, gradient_GD.device), signs.to(gradient_GD.device))
        end = offset + len(signs)
        laid_out = gradient_GD.new_zeros(len(gradient_GD), end + -end % self._fold)
        torch.mul(gradient_GD, signs, out=laid_out[:, offset:end])
        sketch_GR[:, self._matrix_width :] += laid_out.view(len(gradient_GD), -1, self._fold).sum(1)

    def without(self, sketch_KR: Tensor, indices: Collection[int]) -> Tensor:
        """Sketches without what some matrices added to them, and without the vectors if they are all named: they share a block."""
        kept = sketch_KR.clone()
        for slot in (self._slots[index] for index in indices if index in self._slots):
            kept[:, slot * self.rank**2 : (slot + 1) * self.rank**2] = 0
        if self._fold and self.vectors.issubset(indices):
            kept[:, self._matrix_width :] = 0
        return kept

    def relative_variance(self, sketch_KR: Tensor) -> Tensor:
        """Var‖C‖²/‖C‖⁴ of each of K sketches, as they themselves tell: (K,), 0 where a sketch is 0.

        For the blocks ‖B‖² is not known, but E‖MMᵀ‖² = ((1 + p)(1 + q) + 2pq)‖B‖² + (p + q + pq)‖W‖⁴ and E‖M‖⁴ = ‖W‖⁴ + Var‖M‖²
        are two equations for it; ‖M‖⁴ stands for ‖W‖⁴ in the rest, which it exceeds on average.
        """
        norm_K1 = torch.linalg.vector_norm(sketch_KR, dim=1, keepdim=True)
        unit_KR = sketch_KR / torch.where(norm_K1 == 0, 1.0, norm_K1)
        block_KLPQ = unit_KR[:, : self._matrix_width].view(len(unit_KR), -1, self.rank, self.rank)
        fourth_KL = block_KLPQ.square().sum((2, 3)).square()
        outer_KL = (block_KLPQ @ block_KLPQ.mT).square().sum((2, 3))
        both_L, either_L = self._variances.to(sketch_KR.device, non_blocking=True)
        determinant_L = (1 + either_L + 2 * both_L) * (1 + 2 * both_L) - 2 * either_L**2
        square_KL = (((1 + 2 * both_L) * outer_KL - either_L * fourth_KL) / determinant_L).clamp(min=0)
        blocks_K: Tensor = 2 * (either_L * square_KL + both_L * fourth_KL).sum(1)
        fold_K = unit_KR[:, self._matrix_width :].square().sum(1)
        return blocks_K + fold_K.square() * (2 / self._fold) if self._fold else blocks_K

    @property
    def _variances(self) -> Tensor:
        """Of each matrix pq and p + q + pq: (2, L)."""
        p_L, q_L = (
            torch.tensor([[0.0 if side <= self.rank else 1 / self.rank for side in shape] for shape in self._shapes.values()])
            .view(-1, 2)
            .T
        )
        return torch.stack([p_L * q_L, p_L + q_L + p_L * q_L])

    @property
    def _matrix_width(self) -> int:
        return len(self._slots) * self.rank**2

    def _projection(self, index: int, of_rows: bool, like: Tensor) -> Tensor:
        key = index, of_rows, like.device, like.dtype
        placed = self._placed.get(key)
        if placed is None:
            size = self._shapes[index][0 if of_rows else 1]
            drawn = torch.eye(size, self.rank) if size <= self.rank else self._drawn(index, of_rows, size)
            placed = self._placed[key] = drawn.to(like.device, like.dtype)
        return placed

    def _drawn(self, index: int, of_rows: bool, size: int) -> Tensor:
        # A power of two that keeps a projection near its input's entries in size: float16 does not overflow.
        return _signs((size, self.rank), _generator(self._seed, 2 * index + of_rows)).mul_(_step(size))

    def _drawn_vector(self, index: int, shape: torch.Size) -> tuple[Tensor, int]:
        generator = _generator(self._seed, 2 * index)
        return _signs((shape.numel(),), generator), int(torch.randint(self._fold, (1,), generator=generator))


def _step(size: int) -> float:
    return float(2.0 ** -round(log2(size) / 2))


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + number)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).float().mul_(2).sub_(1)
