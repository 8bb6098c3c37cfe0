"""Attempted optimizer steps: those that were made, and those that a GradScaler skipped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gradwatch.errors import SettingsError


class Attempts:
    """Calls `attempt(skipped)` once for each attempted step of the optimizers, before the weights change, and `made` after it.

    Several optimizers that step one after the other on the same gradients make one attempt: `is_fresh` tells whether a backward
    came since the last. A GradScaler does not call `step` where it found a non-finite gradient, so its own `step` is wrapped.
    Raises SettingsError for what is no optimizer.
    """

    def __init__(
        self,
        optimizers: Iterable[Any],
        scaler: Any,
        attempt: Callable[[bool], None],
        is_fresh: Callable[[], bool],
        made: Callable[[], None],
    ) -> None:
        self._made = made
        self._attempt = attempt
        self._is_fresh = is_fresh
        self._count = 0
        self._handles: list[RemovableHandle] = []
        unwrapped = [unwrap(one) for one in optimizers]
        for index, one in enumerate(unwrapped):
            self._handles.append(one.register_step_pre_hook(functools.partial(self._on_step, index)))
        if unwrapped:
            self._handles.append(unwrapped[-1].register_step_post_hook(self._on_made))
        self._scaler = scaler
        if scaler is not None and unwrapped:
            scaler.step = functools.wraps(scaler.step)(functools.partial(self._on_scaler, scaler.step))

    def detach(self) -> None:
        """Leave the optimizers and the scaler as they were."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._scaler is not None:
            vars(self._scaler).pop("step", None)
            self._scaler = None

    def _on_step(self, index: int, *_: Any) -> None:
        if index == 0 or self._is_fresh():
            self._count += 1
            self._attempt(False)

    def _on_made(self, *_: Any) -> None:
        self._made()

    def _on_scaler(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = self._count
        result = step(*args, **kwargs)
        if self._count == before and self._is_fresh():
            self._count += 1
            self._attempt(True)
        return result


def unwrap(optimizer: Any) -> Optimizer:
    """The torch optimizer inside a wrapper such as accelerate's, which has no step hooks. Raises SettingsError where none is."""
    inner = optimizer
    for _ in range(8):
        if isinstance(inner, Optimizer) and type(inner).__name__ != "AcceleratedOptimizer":
            return inner
        inner = getattr(inner, "optimizer", None)
    raise SettingsError(
        f"a {type(optimizer).__name__} is no torch optimizer and holds none: give the optimizer whose step() you call"
    )
