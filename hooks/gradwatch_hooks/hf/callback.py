"""The Trainer's callback: one record for each optimizer step, at the trainer's own step, and everything that it logs itself."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.training_args import ParallelMode

from gradwatch.client import lifecycle
from gradwatch.client.start import newest
from gradwatch.errors import SettingsError
from gradwatch.quantities.sharding import is_dtensor
from gradwatch_hooks.hf.logs import is_summary, to_metrics
from gradwatch_hooks.hf.raw_loss import RawLoss
from gradwatch_hooks.torch import Watcher, watch
from gradwatch_hooks.watching.guard import Guard

if TYPE_CHECKING:
    from gradwatch.client.run import Run

FILTERED = (
    "the gradient at or before step {step} is not finite, and the trainer filters NaN and infinities out of the loss that it logs: "
    "that loss is not the true one (set logging_nan_inf_filter=False in TrainingArguments to see it)"
)


class GradwatchCallback(TrainerCallback):
    """Watches the model of a Trainer while it trains, and logs what the trainer logs.

        trainer = Trainer(model, args, ..., callbacks=[GradwatchCallback()])

    `run` is the newest one where none is given, looked up when the training begins; `options` are those of `watch` in
    `gradwatch_hooks.torch` (roles, engine, max_overhead, include, exclude, depth ...).

    A step has the trainer's number: 1 for the first, n+1 for the first after a resume at n, so that gradients, losses,
    evaluations and checkpoints share one axis. Norms are those before clipping. Raises SettingsError, when training begins, for
    options that cannot be met; later nothing here raises.
    """

    def __init__(self, run: Run | None = None, **options: Any) -> None:
        unknown = sorted(options.keys() - inspect.signature(watch).parameters.keys())
        if unknown:
            raise SettingsError(f"no option {', '.join(map(repr, unknown))}: there are those of gradwatch_hooks.torch.watch")
        self.guard = Guard()
        self.watcher: Watcher | None = None
        self.raw_loss: RawLoss | None = None
        self.before_record: Callable[[Watcher], None] | None = None
        self._given = run
        self._options = options
        self._evaluated: tuple[int, dict[str, float]] = (-1, {})
        self._nonfinite_at: int | None = None
        self._is_filter_told = False
        self._has_norm = False

    @property
    def run(self) -> Run:
        """The run that is logged to. Raises SettingsError where there is none yet."""
        return self._given if self._given is not None else newest()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        """Watch the model, now that it is wrapped and its optimizer exists."""
        self.end()
        self._has_norm, self._nonfinite_at, self._is_filter_told = False, None, False
        asked = {
            "run": self._given or next(iter(reversed(lifecycle.active())), None),
            "optimizer": optimizer,
            "scaler": getattr(optimizer, "scaler", None),
            "process_group": _copies(args, model),
            "first_step": state.global_step + 1,
        }
        self.watcher = watch(model, **(asked | self._options))

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """What is logged from here on belongs to the coming step."""
        if self.watcher is not None:
            self.watcher.step = state.global_step + 1

    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The record of this step is about to be made."""
        with self.guard.within("GradwatchCallback.on_pre_optimizer_step"):
            if self.watcher is not None:
                self.watcher.step = state.global_step + 1
                if self.before_record is not None:
                    self.before_record(self.watcher)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """See what the last record says of the norm."""
        last = self.watcher.last if self.watcher is not None else None
        if last is not None and last.grad_norm is not None:
            self._has_norm = True
            if not math.isfinite(last.grad_norm):
                self._nonfinite_at = state.global_step

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Pass on what the trainer logs; the first process speaks for all, as the trainer has their mean."""
        with self.guard.within("GradwatchCallback.on_log"):
            raw = self.raw_loss.take() if self.raw_loss is not None and logs is not None and "loss" in logs else None
            if not logs or not state.is_world_process_zero:
                return
            if is_summary(logs):
                self.run.log_event("the training ended", kind="summary", step=state.global_step, facts=logs)
                return
            if "loss" in logs and raw is None and args.logging_nan_inf_filter:
                self._tell_filter()
            self.run.log(to_metrics(logs, has_norm=self._has_norm, raw_loss=raw), step=state.global_step)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Remember what this step's weights came to; the numbers themselves are logged by `on_log`."""
        known = self._evaluated[1] if self._evaluated[0] == state.global_step else {}
        self._evaluated = (state.global_step, known | dict(metrics or {}))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Log where the weights lie, with what these very weights came to in an evaluation."""
        with self.guard.within("GradwatchCallback.on_save"):
            if state.is_world_process_zero:
                folder = Path(args.output_dir or ".").absolute() / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
                metrics = self._evaluated[1] if self._evaluated[0] == state.global_step else {}
                self.run.log_checkpoint(str(folder), state.global_step, metrics=metrics)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Leave the model as it was."""
        self.end()

    def end(self) -> None:
        """Log what is known, and leave the model as it was; to be called after a training that an error ended."""
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            with self.guard.within("GradwatchCallback.end"):
                watcher.flush()
                watcher.detach()

    def _tell_filter(self) -> None:
        if self._nonfinite_at is not None and not self._is_filter_told:
            self._is_filter_told = True
            self.run.log_event(FILTERED.format(step=self._nonfinite_at), kind="loss_filtered", step=self._nonfinite_at)


def _copies(args: TrainingArguments, model: torch.nn.Module) -> Any:
    """The processes that train copies of the model. The callback is given the model without the DDP around it, which would tell."""
    if not (dist.is_available() and dist.is_initialized()) or args.parallel_mode is not ParallelMode.DISTRIBUTED or args.deepspeed:
        return None
    is_split = any(is_dtensor(one) for one in model.parameters()) or any(
        isinstance(one, FullyShardedDataParallel) for one in model.modules()
    )
    return None if is_split else dist.group.WORLD
