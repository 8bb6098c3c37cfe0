"""Blocks and batches for tests."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwatch.schema import Block, Curve, Series
from gradwatch.wire import Batch, pack

LOSS = Series("loss", "train/loss")
NORM = Series("grad_norm", "grad_norm")


def block_of(series: Series, values: Sequence[float], first: int = 1) -> Block:
    block = Block()
    for step, value in enumerate(values, first):
        block.add(series, step, value, 1000.0 + step)
    return block


def batch_of(block: Block | None, name: str = "b", process: str = "p", **more: Any) -> Batch:
    return Batch(id=name, process=process, columns=None if block is None else pack(block), **more)


def bits(values: Iterable[float]) -> list[bytes]:
    return [struct.pack("<d", one) for one in values]


def exact(curve: Curve) -> tuple[Series, list[int], list[bytes], list[bytes]]:
    """A curve that compares by bits, since NaN equals nothing."""
    return curve.series, curve.steps, bits(curve.values), bits(curve.wall_times)


def number(pattern: int) -> float:
    """The double with these 64 bits."""
    return float(struct.unpack("<d", struct.pack("<Q", pattern))[0])


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether the condition holds before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
