"""The sketch in parameter space: linear, and true to norms and cosines."""

from __future__ import annotations

import pytest
import torch

from gradwatch.quantities.parameter_sketch import ParameterSketch, prime_below
from gradwatch.quantities.role_gradients import gram_of

SHAPES = [torch.Size(shape) for shape in ((300, 70), (64,), (20, 3, 5, 5), (1, 1), (128, 256))]


def by_hand(sketch, gradients):
    """Every entry put into its bucket, one by one."""
    buckets = [0.0] * sketch.width
    for index, gradient in enumerate(gradients):
        a, b, offset = sketch.signs(index, torch.device("cpu"))
        rows = gradient.reshape(len(a), len(b)).tolist()
        for i, row in enumerate(rows):
            for j, entry in enumerate(row):
                buckets[(offset + i * len(b) + j) % sketch.width] += a[i].item() * b[j].item() * entry
    return torch.tensor(buckets)


def drawn(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def sketched(sketch, gradients):
    into = torch.zeros(sketch.width)
    for index, gradient in enumerate(gradients):
        sketch.add_(into, index, gradient)
    return into


@pytest.mark.parametrize("width", [97, 1021, 65_536])
def test_every_entry_is_in_its_bucket(width):
    sketch = ParameterSketch(SHAPES, width)
    torch.testing.assert_close(sketched(sketch, drawn(0)), by_hand(sketch, drawn(0)), atol=1e-4, rtol=1e-4)


def test_blocks_of_a_large_parameter_go_on_where_the_last_ended(monkeypatch):
    monkeypatch.setattr("gradwatch.quantities.parameter_sketch.BLOCK", 1000)
    sketch = ParameterSketch(SHAPES, 997)
    torch.testing.assert_close(sketched(sketch, drawn(1)), by_hand(sketch, drawn(1)), atol=1e-4, rtol=1e-4)


def test_parts_of_a_gradient_add_up_to_the_sketch_of_the_whole():
    sketch, gradient = ParameterSketch(SHAPES), drawn(2)[0]
    parts = torch.zeros(sketch.width)
    for first in range(0, 300, 70):
        sketch.add_(parts, 0, gradient[first : first + 70], row=first)
    torch.testing.assert_close(parts, sketch.add_(torch.zeros(sketch.width), 0, gradient), atol=1e-5, rtol=1e-5)


def test_norms_and_cosines_are_kept():
    norms, cosines = [], []
    for seed in range(40):
        sketch = ParameterSketch(SHAPES, seed=seed)
        one, other = drawn(seed), drawn(seed + 1000)
        mixed = [0.6 * a + 0.8 * b for a, b in zip(one, other, strict=True)]
        gram = gram_of(torch.stack([sketched(sketch, one), sketched(sketch, mixed)]))
        flat, both = (torch.cat([part.reshape(-1) for part in parts]).double() for parts in (one, mixed))
        norms.append((gram[0, 0].sqrt() / flat.norm() - 1).item())
        true = (flat @ both / flat.norm() / both.norm()).item()
        cosines.append((gram[0, 1] / (gram[0, 0] * gram[1, 1]).sqrt()).item() - true)
    assert max(map(abs, norms)) <= 0.01
    assert torch.tensor(cosines).square().mean().sqrt() <= 0.005
    assert max(map(abs, cosines)) <= 0.016


def test_narrow_gradients_are_summed_in_float32():
    sketch = ParameterSketch(SHAPES)
    narrow = drawn(3, torch.bfloat16)
    torch.testing.assert_close(sketched(sketch, narrow), sketched(sketch, [one.float() for one in narrow]))


def test_the_same_seed_draws_the_same_sketch_on_every_process():
    one, same, other = (sketched(ParameterSketch(SHAPES, seed=seed), drawn(4)) for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("number", "prime"), [(65_536, 65_521), (2, 2), (1, 2), (100, 97)])
def test_the_width_is_a_prime(number, prime):
    assert prime_below(number) == prime
