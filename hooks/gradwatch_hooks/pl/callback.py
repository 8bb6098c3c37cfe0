"""Lightning's callback: one record for each optimizer step, at Lightning's own step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradwatch.client import lifecycle
from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch.schema import INTERRUPTED
from gradwatch_hooks.own_run import is_interrupt, mark_end
from gradwatch_hooks.pl.names import Callback, LightningModule, Trainer
from gradwatch_hooks.pl.optimizers import WatchedOptimizer, watch_optimizers
from gradwatch_hooks.pl.validation import EVAL, Validation, loggers_of
from gradwatch_hooks.torch import Watcher
from gradwatch_hooks.watching.guard import Guard
from gradwatch_hooks.watching.own_methods import OwnMethods


class GradwatchCallback(Callback):
    """Watches a LightningModule while `Trainer.fit` trains it.

        trainer = Trainer(callbacks=[GradwatchCallback(roles=["solver", "verifier"], role_column="role_ids")])

    `run` None is that of a `GradwatchLogger` among the trainer's loggers, else the newest one; `options` are those of `watch` in
    `gradwatch_hooks.torch` (roles, engine, max_overhead, include, exclude, depth ...). A module with several optimizers has as many
    policies, named by `policies` (or `optimizer_0` ...), each with its own parameters and its own count of steps.

    With `role_column`, batches are mappings that hold role ids under that key: (B,) or (B, T) whole numbers, -1 for none. Without
    it, and with manual optimization, put `role(...)` or `roles(...)` around forward and backward.

    Logged are gradients (unscaled, before clipping), the loss that `training_step` gave (its mean over the step's micro-batches of
    this process), checkpoints, and what validation found where no `GradwatchLogger` logs that. The first step is 0, as in
    Lightning's own logs. An exception marks the run as failed; an interrupt, after which Lightning leaves the program, ends it as
    interrupted. Raises SettingsError when the training begins, for options that cannot be met; later nothing here raises.
    """

    def __init__(self, run: Run | None = None, *, role_column: str = "", policies: Sequence[str] = (), **options: Any) -> None:
        self.guard = Guard()
        self._given = run
        self._role_column = role_column
        self._policies = tuple(policies)
        self._options = options
        self._run: Run | None = None
        self._watched: list[WatchedOptimizer] = []
        self._first_steps: dict[str, int] = {}
        self._losses: list[Tensor] = []
        self._last_step = 0
        self._validation = Validation()
        self._validated_at = -1
        self._methods: OwnMethods | None = None

    @property
    def watchers(self) -> list[Watcher]:
        """The watcher of each optimizer, in their order; none outside of the training."""
        return [one.watcher for one in self._watched]

    @property
    def watcher(self) -> Watcher:
        """The watcher of the first optimizer. Raises SettingsError outside of the training."""
        if not self._watched:
            raise SettingsError("GradwatchCallback.watcher: nothing is watched before Trainer.fit and after it")
        return self._watched[0].watcher

    def role(self, role: str, agent: str = "") -> AbstractContextManager[Any]:
        """`Watcher.role`, of every optimizer."""
        return self._in_each(lambda one: one.role(role, agent))

    def roles(self, ids: Tensor | Sequence[int], names: Sequence[Any] | None = None, **more: Any) -> AbstractContextManager[Any]:
        """`Watcher.roles`, of every optimizer."""
        return self._in_each(lambda one: one.roles(ids, names, **more))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Watch the model, now that it is wrapped and what a checkpoint held is restored."""
        self._end()
        logger = next(iter(loggers_of(trainer)), None)
        own = logger.experiment if logger is not None and trainer.is_global_zero else lifecycle.newest()
        self._run = self._given if self._given is not None else own
        is_alone = len(trainer.optimizers) == 1
        self._watched = watch_optimizers(
            trainer.strategy.model or pl_module,
            trainer.optimizers,
            self._run,
            getattr(trainer.precision_plugin, "scaler", None),
            trainer.global_step if is_alone else self._first_steps,
            self._policies,
            self._options,
        )
        self._losses, self._last_step = [], self.watcher.step
        self._methods = OwnMethods(trainer)
        self._methods.wrap("save_checkpoint", partial(self._on_saving, trainer))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Say who speaks in the batch."""
        if not (self._role_column and pl_module.automatic_optimization):
            return
        if not isinstance(batch, Mapping) or self._role_column not in batch:
            with self.guard.within("GradwatchCallback.on_train_batch_start"):
                found = f"has only {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else f"is a {type(batch).__name__}"
                raise SettingsError(
                    f"role_column={self._role_column!r}: a batch {found}; its roles are not measured. Name the key of its role "
                    "ids, or put `with callback.roles(ids):` around forward and backward"
                )
            return
        for watcher in self.watchers:
            watcher.open_roles(batch[self._role_column])

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The roles of the batch are over."""
        if self._role_column and pl_module.automatic_optimization:
            for watcher in self.watchers:
                watcher.close_roles()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Make the record: gradients are whole and not yet clipped."""
        for one in self._watched:
            if one.optimizer is optimizer:
                one.attempt(trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the loss with the step that was made."""
        with self.guard.within("GradwatchCallback.on_train_batch_end"):
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if isinstance(loss, Tensor):
                self._losses.append(loss.detach())
            if self.watcher.step > self._last_step:
                self._last_step = self.watcher.step
                losses, self._losses = self._losses, []
                if losses:
                    self._log({"loss": torch.stack(losses).float().mean()})

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A validation begins."""
        if self._is_validating(trainer):
            with self.guard.within("GradwatchCallback.on_validation_start"):
                self._validation.begin(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what it found."""
        if self._is_validating(trainer):
            with self.guard.within("GradwatchCallback.on_validation_end"):
                found = self._validation.end(trainer)
                self._validated_at = self._last_step
                if found and not loggers_of(trainer) and trainer.is_global_zero:
                    self._log(found, EVAL)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the model as it was, and say how the training ended."""
        run = self._run
        self._end()
        if run is not None:
            with self.guard.within("GradwatchCallback.on_exception"):
                mark_end(run, exception)
                if is_interrupt(exception):
                    run.finish(INTERRUPTED)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the model as it was."""
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """The coming step of each policy, for a checkpoint."""
        return {"steps": {one.policy: one.watcher.step for one in self._watched}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting from a checkpoint."""
        self._first_steps = dict(state_dict.get("steps", {}))

    @contextmanager
    def _in_each(self, enter: Callable[[Watcher], AbstractContextManager[None]]) -> Iterator[None]:
        with ExitStack() as stack:
            for watcher in self.watchers:
                stack.enter_context(enter(watcher))
            yield

    def _is_validating(self, trainer: Trainer) -> bool:
        return bool(self._watched) and not trainer.sanity_checking

    def _on_saving(self, trainer: Trainer, save: Callable[..., None], filepath: Any, *args: Any, **kwargs: Any) -> None:
        save(filepath, *args, **kwargs)
        with self.guard.within("GradwatchCallback: a checkpoint"):
            if self._run is not None and trainer.is_global_zero:
                found = self._validation.found if self._validated_at == self._last_step else {}
                self._run.log_checkpoint(filepath, self._done, metrics=found)

    @property
    def _done(self) -> int:
        """The number of the last step that was made."""
        return max(self._last_step - 1, 0)

    def _log(self, metrics: Mapping[str, Any], stream: str | None = None) -> None:
        if self._run is not None:
            self._run.log(metrics, self._done, stream=stream)

    def _end(self) -> None:
        for watcher in self.watchers:
            watcher.detach()
        self._watched = []
        if self._methods is not None:
            self._methods.restore()
            self._methods = None
