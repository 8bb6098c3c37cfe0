"""The share of the training time that role gradients may take: which steps are measured, so that it is kept."""

from __future__ import annotations

import time
from collections import deque

import torch

from gradwatch.quantities.budget import Budget, Decision
from gradwatch.quantities.engines.clock import CLOCK
from gradwatch_hooks.watching.spread import Spread


class Overhead:
    """Decides at the end of each step whether the next one is measured. All processes of the spread decide the same."""

    def __init__(self, most: float | None, spread: Spread) -> None:
        self._budget = Budget(most, spread.largest)
        self._is_warm = False
        self._late: deque[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = deque()

    @property
    def share(self) -> float:
        """The share of all time so far that engines took."""
        return self._budget.overhead

    def next_step(self, was_measured: bool) -> Decision:
        """Whether the coming step is measured; tell whether the one that ends here was."""
        taken = CLOCK.take()
        # The first step that is measured sets the engine up, which no later one does.
        if was_measured and self._is_warm:
            if isinstance(taken, float):
                self._budget.measured(taken)
            else:
                self._late.append(taken)
        self._is_warm = self._is_warm or was_measured
        while self._late and self._late[0][-1][1].query():  # type: ignore[no-untyped-call]
            self._budget.measured(sum(start.elapsed_time(end) for start, end in self._late.popleft()) / 1e3)
        return self._budget.decide(time.perf_counter())
