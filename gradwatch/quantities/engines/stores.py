"""Where the speakers' gradients of each parameter come to lie: leaves, whose gradients autograd adds up.

What a backward pass measures is returned as the gradient of a leaf that stands beside the module's output. So nothing is changed
on the side: it works in compiled graphs and in what checkpointing computes again, and adds up over uses and passes by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count
from math import prod

import torch
from torch import Tensor

from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.parameter_sketch import ParameterSketch
from gradwatch.quantities.sharding import is_dtensor

SMALL = 16_384  # entries of a weight up to which K times as many float32 are held
USES: Counter[int] = Counter()  # by `Store.slot`: how often a backward pass came by; operators count there, as they have no state
FAILURES: dict[int, str] = {}  # by `Store.slot`: why a measurement failed in this step
_SLOTS = count()


class Store:
    """What is kept of one parameter's speaker gradients.

    `own` is a leaf (K, numel) where the parameter is small (`is_small`), else (K, K), of which the gradient is a Gram matrix: that
    one is right only where one backward pass used the weight once. `wants` (int64 of shape (2,), on the CPU) says whether `own` and
    whether the sketch is kept in this step; operators read it, so that a compiled graph needs no second version.
    """

    def __init__(self, index: int, shape: torch.Size, speakers: int, small: int, sketch: ParameterSketch) -> None:
        self.index = index
        self.rows = shape[0] if len(shape) else 1
        self.columns = prod(shape[1:])
        self.is_small = len(shape) < 2 or shape.numel() <= small
        self.slot = next(_SLOTS)
        self.is_reused = self.is_out = self.missed = False
        self.trains = True
        self.wants = torch.zeros(2, dtype=torch.long)
        self._speakers = speakers
        self._sketch = sketch
        self.own = self.sketch = torch.empty(0)
        self.a, self.b, self.offset = sketch.signs(index, torch.device("cpu"))
        self.device: torch.device | None = None

    @property
    def counts(self) -> bool:
        """Whether what it measures is part of this step's reading."""
        return self.trains and not self.is_out

    @property
    def uses(self) -> int:
        """How often a backward pass came by in this step."""
        return USES[self.slot]

    @property
    def failure(self) -> str:
        """Why a measurement failed in this step."""
        return FAILURES.get(self.slot, "")

    def place(self, device: torch.device) -> None:
        """Make the leaf on a device."""
        self.device = device
        self.a, self.b, _ = self._sketch.signs(self.index, device)
        self.own = leaf(self._speakers, self.rows * self.columns if self.is_small else self._speakers, device=device)

    def want(self, *, own: bool, sketched: bool) -> None:
        """Choose what is kept in the step that begins, and forget the last one."""
        self.wants[0], self.wants[1] = own, sketched
        self.own.grad = None
        self.missed = False
        USES[self.slot] = 0
        FAILURES.pop(self.slot, None)


class Stores:
    """The stores of a target's parameters, and the sketches that they share: (K, m), one on each device.

    `shared` sketches hold what is used more than once, or everything where several processes share the gradient. In the first step
    that is not known of most: they keep both, the sketch in `spare`.
    """

    def __init__(self, target: Target, tied: Iterable[int], small: int = SMALL) -> None:
        self.target = target
        shapes = [member.parameter.shape for member in target.parameters]
        self.sketch = ParameterSketch(shapes, seed=target.seed)
        self.all = [Store(index, shape, target.speakers, small, self.sketch) for index, shape in enumerate(shapes)]
        self._by_id = {id(member.parameter): store for member, store in zip(target.parameters, self.all, strict=True)}
        self.shared: dict[torch.device, Tensor] = {}
        self.spare: dict[torch.device, Tensor] = {}
        self.knows = target.is_spread
        for store in self.all:
            store.is_reused = target.is_spread or store.index in tied
        self._choose()

    def of(self, parameter: object) -> Store | None:
        """The store of a parameter, None for one that is not measured."""
        return self._by_id.get(id(parameter))

    def prepare(self) -> None:
        """See which parameters train, and make leaves on their devices where there are none yet."""
        for member, store in zip(self.target.parameters, self.all, strict=True):
            store.trains = member.parameter.requires_grad
            if store.device is None:
                self.move(store, device_of(member.parameter))

    def move(self, store: Store, device: torch.device) -> None:
        """Make a store's leaves on a device."""
        store.place(device)
        self._share(store)

    def begin(self, *, learned: bool) -> None:
        """Begin a step; `learned`: the step that ends was measured, and tells which parameters are used more than once."""
        self.knows = self.knows or learned
        for store in self.all:
            store.is_reused = store.is_reused or store.uses > 1
        for kept in (*self.shared.values(), *self.spare.values()):
            kept.grad = None
        if self.knows:
            self.spare = {}
        self._choose()

    def _choose(self) -> None:
        for store in self.all:
            in_spare = not self.knows and not store.is_reused
            store.want(own=store.is_small or not store.is_reused, sketched=not store.is_small and (store.is_reused or in_spare))
            self._share(store)

    def _share(self, store: Store) -> None:
        if store.device is None or store.is_small:
            return
        sketches = self.shared if store.is_reused or self.knows else self.spare
        if store.device not in sketches:
            sketches[store.device] = leaf(self.target.speakers, self.sketch.width, device=store.device)
        store.sketch = sketches[store.device]


def leaf(*shape: int, device: torch.device) -> Tensor:
    """A leaf of which the gradient is wanted, not the value: its storage is one number."""
    return torch.zeros((), device=device).expand(shape).detach().requires_grad_()


def device_of(parameter: Tensor) -> torch.device:
    """Where the values of a parameter are."""
    return parameter.to_local().device if is_dtensor(parameter) else parameter.device
