"""CountSketch of gradients in parameter space: a short vector whose inner products are those of the gradients, in expectation."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, sqrt

import torch
from torch import Tensor

WIDTH = 65_521
BLOCK = 1 << 17  # entries signed at a time: the copy stays in the cache, and the peak of memory where it was


class ParameterSketch:
    """Sketches of width m, a prime: entry (i, j) of parameter p, i its row, goes to bucket (o_p + i·n + j) mod m as a_i·b_j·g_ij.

    a and b are Rademacher signs and o_p an offset, drawn anew for each parameter from `seed`. Sketching is linear, so sketches of
    micro-batches, of processes and of a tied weight's uses add up. E⟨C_k, C_l⟩ = ⟨g_k, g_l⟩; the relative standard deviation of a
    norm is about √(1/2m) and that of a cosine about 1/√m. Source: Charikar, Chen and Farach-Colton (2002), with product signs.
    """

    def __init__(self, shapes: Sequence[torch.Size], width: int = WIDTH, seed: int = 0) -> None:
        self.width = prime_below(width)
        self._drawn = [_draw(shape, self.width, seed * 1_000_003 + index) for index, shape in enumerate(shapes)]
        self._placed: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def norm_error(self) -> float:
        """The standard deviation of a sketched norm, as a share of it."""
        return sqrt(0.5 / self.width)

    def signs(self, index: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
        """(a, b, o) of one parameter: float32 of shape (rows,) and (columns,), and the offset."""
        a, b, offset = self._drawn[index]
        if device.type == "cpu":
            return a, b, offset
        placed = self._placed.get((index, device))
        if placed is None:
            placed = self._placed[index, device] = a.to(device), b.to(device)
        return (*placed, offset)

    def add_(self, sketch_m: Tensor, index: int, gradient: Tensor, row: int = 0) -> Tensor:
        """Add a gradient, or rows of it from `row` on, to a float32 sketch of shape (m,) in place; the sketch."""
        a, b, offset = self.signs(index, gradient.device)
        return add_signed_(sketch_m, gradient, a, b, offset, row)


def add_signed_(sketch_m: Tensor, gradient: Tensor, a: Tensor, b: Tensor, offset: int, row: int = 0) -> Tensor:
    """`ParameterSketch.add_`, the signs given."""
    columns = len(b)
    rows = gradient.reshape(-1, columns)
    step = max(1, BLOCK // columns) if gradient.device.type == "cpu" else len(rows) or 1
    # Memory that is asked for block by block costs more than the arithmetic.
    room = sketch_m.new_empty(min(step, len(rows)), columns)
    for first in range(0, len(rows), step):
        block = rows[first : first + step]
        signed = torch.mul(block, a[row + first : row + first + len(block), None], out=room[: len(block)])
        if columns > 1:
            signed.mul_(b)
        _fold_(sketch_m, signed.view(-1), (offset + (row + first) * columns) % len(sketch_m))
    return sketch_m


def _fold_(sketch_m: Tensor, values: Tensor, start: int) -> None:
    """Add values to consecutive buckets from `start` on, around and around."""
    width, size = len(sketch_m), len(values)
    head = min(width - start, size)
    sketch_m[start : start + head].add_(values[:head])
    whole = (size - head) // width
    if whole == 1:
        sketch_m.add_(values[head : head + width])
    elif whole:
        sketch_m.add_(values[head : head + whole * width].view(whole, width).sum(0))
    tail = values[head + whole * width :]
    sketch_m[: len(tail)].add_(tail)


def _draw(shape: torch.Size, width: int, seed: int) -> tuple[Tensor, Tensor, int]:
    generator = torch.Generator().manual_seed(seed)
    rows = shape[0] if len(shape) else 1
    columns = max(1, shape.numel() // max(1, rows))
    a, b = (torch.randint(0, 2, (size,), generator=generator).mul_(2).sub_(1).float() for size in (rows, columns))
    return a, b if columns > 1 else torch.ones(1), int(torch.randint(width, (1,), generator=generator))


def prime_below(number: int) -> int:
    """The largest prime up to `number`, at least 2."""
    while number > 2 and any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return max(2, number)
