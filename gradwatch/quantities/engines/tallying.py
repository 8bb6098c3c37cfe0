"""The reading of what stores hold at the end of a step, and whether it is right."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch
from torch import Tensor

from gradwatch.quantities.engines.stores import Store, Stores
from gradwatch.quantities.role_gradients import gram_of

FINE = 1e-6  # the relative error of float32 products, with a margin
SIGMAS = 3


def complete(stores: Stores, passes: int) -> list[Store]:
    """The stores whose tap was there in every backward: at least once for each of the passes that were measured.

    A pass in which no tap was there at all, such as one that was announced and did not happen, is none.
    """
    there = [store for store in stores.all if store.uses and store.counts]
    seen = min(passes, max((store.uses for store in there), default=0))
    return [store for store in there if store.uses >= seen and not store.missed and not store.failure]


class Tally:
    """What is right of a step's stores: `held` by their own leaves, and `sketched` into the sketches `sketches`."""

    def __init__(self, stores: Stores, passes: int) -> None:
        self.stores = stores
        whole = complete(stores, passes)
        large = [store for store in whole if not store.is_small]
        unsure = [store for store in large if not store.is_reused]
        spared = not stores.knows and any(store.uses > 1 for store in unsure)
        self.held = [store for store in whole if store.is_small] + (
            [] if spared else [store for store in unsure if store.uses == 1]
        )
        self.sketched = [store for store in large if store.is_reused or spared]
        known = {id(store) for store in self.sketched}
        self.sketches = (*stores.shared.values(), *(stores.spare.values() if spared else ()))
        touched = [store for store in stores.all if store.uses and not store.is_small and (store.is_reused or spared)]
        self.spoilt = [store for store in touched if id(store) not in known]

    @property
    def covered(self) -> frozenset[int]:
        """The indices of the parameters that are measured."""
        return frozenset(store.index for store in (*self.held, *self.sketched))

    @property
    def error(self) -> tuple[float, float]:
        """Bounds of a norm's relative error and of a cosine's error."""
        if not self.sketched:
            return FINE, FINE
        return SIGMAS * self.stores.sketch.norm_error, SIGMAS / sqrt(self.stores.sketch.width)

    def gram(self) -> Tensor:
        """The Gram matrix of what this process measured: (K, K)."""
        device = self._device()
        speakers = self.stores.target.speakers
        total = torch.zeros(speakers, speakers, device=device, dtype=torch.float32 if device.type == "mps" else torch.float64)
        for store in self.held:
            if store.own.grad is not None:
                total += (gram_of(store.own.grad) if store.is_small else store.own.grad).to(total)
        return total + gram_of(self._sketch(device)).to(total) if self.sketched else total

    def sums(self) -> Tensor:
        """The sketch and what small stores hold, of all parameters whether measured or not: a float32 vector."""
        device = self._device()
        parts = [self._sketch(device).reshape(-1), *(_grad(store).reshape(-1).to(device) for store in _small(self.stores))]
        return torch.cat(parts)

    def gram_of_sums(self, sums: Tensor) -> Tensor:
        """The Gram matrix of `sums` of all processes: (K, K)."""
        speakers, width = self.stores.target.speakers, self.stores.sketch.width
        sketch = sums[: speakers * width].view(speakers, width)
        covered = self.covered
        total = gram_of(sketch)
        first = sketch.numel()
        for store in _small(self.stores):
            last = first + store.own.numel()
            if store.index in covered:
                total = total + gram_of(sums[first:last].view(speakers, -1))
            first = last
        return total

    def _sketch(self, device: torch.device) -> Tensor:
        total = torch.zeros(self.stores.target.speakers, self.stores.sketch.width, device=device)
        for one in self.sketches:
            if one.grad is not None:
                total += one.grad.to(device)
        return total

    def _device(self) -> torch.device:
        return next(store.device for store in self.stores.all if store.device is not None)


def _small(stores: Stores) -> Iterator[Store]:
    return (store for store in stores.all if store.is_small)


def _grad(store: Store) -> Tensor:
    return torch.zeros(store.own.shape, device=store.own.device) if store.own.grad is None else store.own.grad
