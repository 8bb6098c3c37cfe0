"""Numbers that are still on a device, read when they have arrived: the training thread never waits for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

Use = Callable[[list[float]], None]


class Later:
    """Hands vectors of numbers on in the order in which they were given, each with one copy to the host.

    On CUDA the copy goes to pinned memory and an event stands behind it; `ready` hands on what has arrived, `flush` waits for the
    rest. On the CPU a vector is handed on at once.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Tensor, torch.cuda.Event | None, Use]] = deque()

    def give(self, numbers: Tensor, use: Use) -> None:
        """Read these when they are there, and call `use` with them."""
        if numbers.is_cuda:
            held = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True).copy_(numbers, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(numbers.device))
            self._waiting.append((held, event, use))
        else:
            self._waiting.append((numbers, None, use))
        self.ready()

    def ready(self) -> None:
        """Hand on what has arrived."""
        while self._waiting and _has_passed(self._waiting[0][1]):
            self._next()

    def flush(self) -> None:
        """Wait for everything, and hand it on."""
        while self._waiting:
            event = self._waiting[0][1]
            if event is not None:
                event.synchronize()
            self._next()

    def _next(self) -> None:
        numbers, _, use = self._waiting.popleft()
        use(numbers.tolist())


def _has_passed(event: torch.cuda.Event | None) -> bool:
    return event is None or bool(event.query())  # type: ignore[no-untyped-call]
