"""What a validation found, told apart from what Lightning still holds of earlier ones."""

from __future__ import annotations

from typing import Any

from gradwatch_hooks.pl.logger import GradwatchLogger
from gradwatch_hooks.pl.names import Trainer

EVAL = "eval"


class Validation:
    """`begin` and `end` enclose one validation within a training; sanity checks are none."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {}
        self.found: dict[str, Any] = {}

    def begin(self, trainer: Trainer) -> None:
        """What our loggers get from here on is of the stream `eval`."""
        self._before = dict(trainer.callback_metrics)
        for logger in loggers_of(trainer):
            logger.stream = EVAL

    def end(self, trainer: Trainer) -> dict[str, Any]:
        """The metrics of this validation; `found` keeps them."""
        for logger in loggers_of(trainer):
            logger.stream = None
        # Lightning makes new tensors for what it computes; what is still the same object is of an earlier loop.
        self.found = {key: value for key, value in trainer.callback_metrics.items() if self._before.get(key) is not value}
        return self.found


def loggers_of(trainer: Trainer) -> list[GradwatchLogger]:
    """Our loggers among the trainer's."""
    return [one for one in trainer.loggers if isinstance(one, GradwatchLogger)]
