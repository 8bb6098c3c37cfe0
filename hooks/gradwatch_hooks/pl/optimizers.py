"""One watcher for each optimizer of a LightningModule, and the steps that each of them counts."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch.quantities.parameter_groups import group_parameters
from gradwatch_hooks.torch import Watcher, watch


class WatchedOptimizer:
    """An optimizer, its watcher, and the number of its coming step.

    A loop with several optimizers steps them in turn, so that Lightning's `global_step` is nobody's own: each one counts.
    """

    def __init__(self, optimizer: Optimizer, policy: str, watcher: Watcher, emits: bool) -> None:
        self.optimizer = optimizer
        self.policy = policy
        self.watcher = watcher
        self._emits = emits
        self._at = -1

    def attempt(self, global_step: int) -> None:
        """A step is about to be made; LBFGS says so several times a step."""
        if global_step == self._at:
            return
        self._at = global_step
        if self._emits:
            self.watcher.emit()


def watch_optimizers(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    run: Run | None,
    scaler: Any,
    first_steps: Mapping[str, int] | int,
    policies: Sequence[str],
    options: Mapping[str, Any],
) -> list[WatchedOptimizer]:
    """Watch a model's optimizers, each at the parameters that it steps; several are told apart by policy.

    `first_steps` are by policy, or one number for all. Raises SettingsError as `watch` does, and where the number of
    policies is another than that of optimizers.
    """
    names = list(policies) or ([""] if len(optimizers) == 1 else [f"optimizer_{index}" for index in range(len(optimizers))])
    if len(names) != len(optimizers):
        raise SettingsError(f"policies={names}: the module has {len(optimizers)} optimizers; give each a name")
    watched: list[WatchedOptimizer] = []
    try:
        for name, optimizer in zip(names, optimizers, strict=True):
            own = dict(options) if len(optimizers) == 1 else {**options, **_of(optimizer, model, options)}
            # Without a scaler Lightning runs the backward inside of the optimizer's step, after its pre-hooks: the callback emits.
            stepper = None if scaler is None else optimizer
            first = first_steps if isinstance(first_steps, int) else first_steps.get(name, 0)
            watcher = watch(model, run=run, optimizer=stepper, scaler=scaler, policy=name, first_step=first, **own)
            watched.append(WatchedOptimizer(optimizer, name, watcher, stepper is None))
    except SettingsError:
        for one in watched:
            one.watcher.detach()
        raise
    return watched


def _of(optimizer: Optimizer, model: nn.Module, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that leave an optimizer's parameters of those that the user chose."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    chosen = group_parameters(model, include=options.get("include", ()), exclude=options.get("exclude", ())).parameters
    return {"include": [glob.escape(one.name) for one in chosen if id(one.parameter) in own], "exclude": ()}
