"""The extremes of tensors, in the order in which they come: which was the first with a value that is not finite, told late."""

from __future__ import annotations

from collections import defaultdict
from math import inf

import torch
from torch import Tensor

MANY = 4096  # extremes kept before they are made one number


class CallExtremes:
    """Keeps the smallest and the largest value of tensors on their device, and waits for nothing.

    Both are exact, where a sum of large finite values may overflow, and both are NaN where a value is. Each tensor comes with a
    label below `labels`.
    """

    def __init__(self, labels: int) -> None:
        self._labels = labels
        self._count = 0
        self._calls: defaultdict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
        self._extremes: defaultdict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
        self._firsts: list[Tensor] = []
        self._numbers: dict[tuple[torch.device, torch.dtype], tuple[list[int], Tensor]] = {}

    def add(self, label: int, extremes: tuple[Tensor, Tensor]) -> None:
        """Add what `torch.aminmax` made of a tensor."""
        cell = extremes[0].device, extremes[0].dtype
        self._extremes[cell] += extremes
        self._calls[cell].append(self._count * self._labels + label)
        self._count += 1
        if len(self._calls[cell]) >= MANY:
            self._fold(cell)

    def first(self, home: torch.device) -> Tensor:
        """n·labels + label of the first tensor with a value that is not finite, the n-th from 0; inf where none had: shape ()."""
        for cell in list(self._calls):
            self._fold(cell)
        nothing = torch.full((1,), inf, device=home, dtype=_wide(home))
        return torch.cat([nothing, *(one.view(1).to(home, non_blocking=True) for one in self._firsts)]).amin()

    def clear(self) -> None:
        """Begin again at 0."""
        self._count = 0
        self._calls.clear()
        self._extremes.clear()
        self._firsts.clear()

    @torch.no_grad()
    def _fold(self, cell: tuple[torch.device, torch.dtype]) -> None:
        finite_C = torch.stack(self._extremes.pop(cell)).isfinite().view(-1, 2).all(1)
        self._firsts.append(torch.where(finite_C, inf, self._numbered(cell, self._calls.pop(cell))).amin())

    def _numbered(self, cell: tuple[torch.device, torch.dtype], calls: list[int]) -> Tensor:
        """The calls' numbers on the device. They are the same in most steps: sent there once."""
        known = self._numbers.get(cell)
        if known is None or known[0] != calls:
            known = self._numbers[cell] = calls, torch.tensor(calls, dtype=_wide(cell[0])).to(cell[0], non_blocking=True)
        return known[1]


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
