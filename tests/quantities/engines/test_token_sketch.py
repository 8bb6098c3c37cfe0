"""The error that a token sketch tells of itself is kept, and is not much larger than what is seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradwatch.quantities.engines.token_sketch import TokenSketch

ROWS, COLUMNS, TRIALS = 40, 36, 250


def gradients(terms: int, matrices: int) -> list[Tensor]:
    """Sums of so many outer products (one token makes one), and a vector."""
    factors = [(torch.randn(ROWS, terms), torch.randn(COLUMNS, terms)) for _ in range(matrices)]
    return [left @ right.T for left, right in factors] + [torch.randn(COLUMNS)]


def sketched(sketch: TokenSketch, parts: list[Tensor]) -> Tensor:
    found = torch.zeros(1, sketch.width)
    for index, part in enumerate(parts):
        if part.dim() == 1:
            sketch.add_vector_(found, index, part[None])
        else:
            sketch.add_matrix_(found, index, (sketch.rows(index, part).T @ part @ sketch.columns(index, part))[None])
    return found[0]


def made(matrices: int, rank: int, seed: int) -> TokenSketch:
    shapes = {index: torch.Size((ROWS, COLUMNS)) for index in range(matrices)}
    return TokenSketch(shapes, {matrices: torch.Size((COLUMNS,))}, rank, seed)


@pytest.mark.parametrize(("terms", "matrices", "rank"), [(1, 1, 32), (1, 8, 16), (2, 2, 32), (100, 1, 8), (100, 8, 32)])
def test_the_error_told_is_kept_and_not_far_above_the_error_seen(terms: int, matrices: int, rank: int) -> None:
    torch.manual_seed(terms + matrices)
    norm, cosine, told = [], [], []
    for seed in range(TRIALS):
        sketch = made(matrices, rank, seed)
        first, other = gradients(terms, matrices), gradients(terms, matrices)
        mixed = [(1 - seed / TRIALS) * a + seed / TRIALS * b for a, b in zip(first, other, strict=True)]
        true_2D = torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in (first, mixed)])
        found_2R = torch.stack([sketched(sketch, parts) for parts in (first, mixed)])
        norm.append((found_2R.norm(dim=1) / true_2D.norm(dim=1) - 1).abs().max())
        cosine.append((torch.cosine_similarity(*found_2R, dim=0) - torch.cosine_similarity(*true_2D, dim=0)).abs())
        told.append(3 * sketch.relative_variance(found_2R).max().sqrt())
    norm_T, cosine_T, told_T = torch.stack(norm), torch.stack(cosine), torch.stack(told)
    assert (norm_T <= told_T / 2).float().mean() >= 0.99
    assert (cosine_T <= told_T).float().mean() >= 0.99
    assert told_T.mean() / 2 <= 5 * norm_T.square().mean().sqrt()


def test_inner_products_are_right_on_average() -> None:
    torch.manual_seed(0)
    first, other = gradients(3, 2), gradients(3, 2)
    mixed = [a + b for a, b in zip(first, other, strict=True)]
    truth = sum(float((a * b).sum()) for a, b in zip(first, mixed, strict=True))
    found = [float(sketched(made(2, 16, seed), first) @ sketched(made(2, 16, seed), mixed)) for seed in range(300)]
    assert sum(found) / len(found) == pytest.approx(truth, rel=0.05)


def test_sides_no_longer_than_the_rank_are_kept_as_they_are() -> None:
    torch.manual_seed(0)
    parts = gradients(3, 2)
    sketch = made(2, 40, 0)
    assert float(sketched(sketch, parts).norm()) == pytest.approx(float(torch.cat([p.reshape(-1) for p in parts]).norm()), rel=1e-5)
    assert float(sketch.relative_variance(sketched(sketch, parts)[None])) < 1e-5


def test_float16_does_not_overflow_where_its_input_does_not() -> None:
    sketch = TokenSketch({0: torch.Size((4096, 64))}, {}, 8)
    gradient = torch.full((1, 4096), 3e4, dtype=torch.float16)
    assert (gradient @ sketch.rows(0, gradient)).isfinite().all()


@pytest.mark.parametrize("value", [0.0, torch.nan])
def test_the_variance_of_nothing_is_0_and_that_of_a_nan_is_nan(value: float) -> None:
    sketch = made(1, 8, 0)
    assert sketch.relative_variance(torch.full((1, sketch.width), value)).tolist() == pytest.approx([value], nan_ok=True)


def test_a_model_with_many_matrices_has_a_smaller_rank() -> None:
    shapes = {index: torch.Size((64, 64)) for index in range(400)}
    assert [TokenSketch(dict(list(shapes.items())[:count]), {}).rank for count in (10, 200, 400)] == [32, 18, 12]
