"""The time that engines take inside a training step, measured where they take it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import torch


class Clock:
    """Adds up the time of its `with` blocks: by the host's clock, and on CUDA by the device's own, with events around the block.

    Blocks stand inside a user's backward pass; on CUDA, the host's time would only be that of queueing the work. A block within a
    block is part of it: an engine's own backward comes by the hooks of the others.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._start = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._device = False
        self._depth = 0

    def __enter__(self) -> None:
        """Start."""
        self._depth += 1
        if self._depth > 1:
            return
        self._start = self._clock()
        self._device = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if self._device:
            self._events.append((_event(), _event()))
            self._events[-1][0].record()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self._depth -= 1
        if self._depth:
            return
        if self._device:
            self._events[-1][1].record()
        else:
            self._seconds += self._clock() - self._start

    def take(self) -> list[tuple[torch.cuda.Event, torch.cuda.Event]] | float:
        """What was measured since the last call: seconds, or on CUDA pairs of events to be read once they have passed."""
        events, seconds = self._events, self._seconds
        self._events, self._seconds = [], 0.0
        return events or seconds


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


CLOCK = Clock()
"""The process's one: engines of several models take turns."""
