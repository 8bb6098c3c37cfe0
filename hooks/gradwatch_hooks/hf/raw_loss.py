"""The loss as it was, beside the one that the trainer logs: that one leaves out NaN and infinities unless it is told not to."""

from __future__ import annotations

import math

from torch import Tensor


class RawLoss:
    """Adds up the losses of this process's micro-batches where they lie, without waiting for the device."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None

    def add(self, loss: Tensor) -> None:
        """One more micro-batch: what `training_step` returned."""
        self._sum = loss.detach() if self._sum is None else self._sum + loss.detach()

    def take(self) -> float | None:
        """What the sum since the last call came to, if it is not finite; None otherwise. Waits for the device."""
        number = math.nan if self._sum is None else float(self._sum)
        is_bad = self._sum is not None and not math.isfinite(number)
        self._sum = None
        return number if is_bad else None
