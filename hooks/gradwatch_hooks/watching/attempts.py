"""Attempted optimizer steps: those that were made, and those that a GradScaler skipped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gradwatch.errors import SettingsError
from gradwatch_hooks.watching.own_methods import OwnMethods


class Attempts:
    """Calls `attempt(skipped)` once for each attempted step of the optimizers, before the weights change, and `made` after it.

    Several optimizers that step one after the other on the same gradients make one attempt: `is_fresh` tells whether a backward
    came since the last. A GradScaler does not call `step` where it found a non-finite gradient, so its own `step` is wrapped. Where
    `step` is given a closure, gradients are those of its first evaluation. Raises SettingsError for what is no optimizer.
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
        self._is_over = self._is_inside = False
        self._optimizers = tuple(unwrap(one) for one in optimizers)
        for index, one in enumerate(self._optimizers):
            self._handles.append(one.register_step_pre_hook(functools.partial(self._on_step, index)))
        if self._optimizers:
            self._handles.append(self._optimizers[-1].register_step_post_hook(self._on_made))
        self._scaler = OwnMethods(scaler)
        if scaler is not None and self._optimizers:
            self._scaler.wrap("step", self._on_scaler)

    def detach(self) -> None:
        """Leave the optimizers and the scaler as they were."""
        self._is_over = True
        self._scaler.restore()
        # An optimizer that goes through its hooks just now raises if one is taken away: there they stay, and do nothing.
        for handle in () if self._is_inside else self._handles:
            handle.remove()
        self._handles = []

    def _on_step(self, index: int, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if self._is_over or (index and closure is None and not self._is_fresh()):
            return None
        if not callable(closure):
            self._begin(skipped=False)
            return None
        evaluated = self._evaluated(closure)
        return ((args[0], evaluated, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": evaluated})

    def _evaluated(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, after whose first call the gradients are there and the weights as they were."""
        before = self._count

        @functools.wraps(closure)
        def evaluate() -> Any:
            loss = closure()
            if self._count == before and not self._is_over:
                self._begin(skipped=False)
            return loss

        return evaluate

    def _begin(self, *, skipped: bool) -> None:
        self._count += 1
        self._is_inside = True
        try:
            self._attempt(skipped)
        finally:
            self._is_inside = False

    def _on_made(self, *_: Any) -> None:
        if not self._is_over:
            self._made()

    def _on_scaler(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = self._count
        result = step(*args, **kwargs)
        if self._count == before and self._is_own(args[0] if args else kwargs.get("optimizer")) and self._is_fresh():
            self._begin(skipped=True)
        return result

    def _is_own(self, optimizer: Any) -> bool:
        """Whether it is one of these: a scaler may step another model's too."""
        inner = innermost(optimizer)
        return any(one is inner for one in self._optimizers)


def unwrap(optimizer: Any) -> Optimizer:
    """The torch optimizer inside a wrapper such as accelerate's, which has no step hooks. Raises SettingsError where none is."""
    inner = innermost(optimizer)
    if inner is None:
        raise SettingsError(
            f"a {type(optimizer).__name__} is no torch optimizer and holds none: give the optimizer whose step() you call"
        )
    return inner


def innermost(optimizer: Any) -> Optimizer | None:
    """The torch optimizer that something is or wraps, None where there is none."""
    inner = optimizer
    for _ in range(8):
        if isinstance(inner, Optimizer) and type(inner).__name__ != "AcceleratedOptimizer":
            return inner
        inner = getattr(inner, "optimizer", None)
    return None
