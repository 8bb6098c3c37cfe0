"""What of a trainer's own log entries is passed on: all but what is measured better here, and what is not of one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SUMMARY = "train_runtime"
NOT_APPLIED = "rewards/"


def is_summary(logs: Mapping[str, Any]) -> bool:
    """Whether an entry is the last one of a training: its loss and times are of the whole training, not of a step."""
    return SUMMARY in logs


def to_metrics(logs: Mapping[str, Any], *, has_norm: bool, raw_loss: float | None = None) -> dict[str, float]:
    """The numbers of one log entry, under the trainer's keys.

    Its `grad_norm` is that of the last of the steps that it sums up: left out where each step's is measured (`has_norm`).
    `raw_loss` replaces a loss out of which the trainer filtered NaN and infinities. None is how TRL writes a metric of which every
    value was NaN, and becomes NaN again, but for the reward of a function that applied to no completion: that is absent.
    """
    metrics: dict[str, float] = {}
    for key, value in logs.items():
        if (key == "grad_norm" and has_norm) or (value is None and NOT_APPLIED in key):
            continue
        number = _number(value)
        if number is not None:
            metrics[key] = number
    if raw_loss is not None and "loss" in metrics:
        metrics["loss"] = raw_loss
    return metrics


def _number(value: Any) -> float | None:
    """The number that a value is, None for text and the like."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
