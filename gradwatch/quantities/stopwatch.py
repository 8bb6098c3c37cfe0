"""How long a measurement takes: by the host's clock, or on CUDA by the device's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

import torch


class Stopwatch:
    """Times what stands in its `with` block, for `Budget.measured`.

    On CUDA by events in the current stream: the host only queues work there, and its one wait for the result would count the
    backward pass before it. Elsewhere by `clock`, in seconds.
    """

    def __init__(self, device: torch.device | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device is not None and device.type == "cuda":
            self._events = _event(), _event()
        self._device = device
        self._start = self._end = 0.0

    def __enter__(self) -> Self:
        """Start."""
        self._start = self._clock()
        if self._events is not None:
            self._events[0].record(torch.cuda.current_stream(self._device))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, whether or not the block failed."""
        if self._events is not None:
            self._events[1].record(torch.cuda.current_stream(self._device))
        self._end = self._clock()

    def seconds(self) -> float | None:
        """What the last block took; None while the device is not through with it: ask again at the next step. Never waits."""
        if self._events is None:
            return self._end - self._start
        start, end = self._events
        return start.elapsed_time(end) / 1e3 if end.query() else None  # type: ignore[no-untyped-call]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
