"""The hook for Hugging Face accelerate: a tracker for what `accelerator.log` is given, and the watcher of a prepared model.

tracker = GradwatchTracker("maze")
accelerator = Accelerator(log_with=tracker, gradient_accumulation_steps=4)
accelerator.init_trackers("maze", config={"lr": 1e-4})
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
with watch(accelerator, model, optimizer, roles=["solver", "verifier"]) as watcher:
    ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from gradwatch.client import lifecycle
from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch_hooks import torch as plain
from gradwatch_hooks.own_run import OwnRun
from gradwatch_hooks.watching.watcher import Watcher

try:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.tracking import GeneralTracker, on_main_process
    from accelerate.utils import DistributedType
except ModuleNotFoundError as error:
    if error.name != "accelerate":
        raise
    raise ModuleNotFoundError("gradwatch_hooks.accelerate needs accelerate: pip install accelerate", name="accelerate") from error

__all__ = ["GradwatchTracker", "watch"]


class GradwatchTracker(GeneralTracker):  # type: ignore[misc]
    """Logs to `run`, or to a run that it opens on the main process with `settings`, those of `gradwatch.init`.

    `init_trackers(config=...)` becomes the run's configuration. What `accelerator.log(..., log_kwargs={"gradwatch": {...}})` names
    are the axes of `Run.log`: `role`, `stream` ... `end_training` finishes a run that the tracker opened. Also fit for
    `accelerate.tracking.register_tracker_class`. Raises SettingsError where the run cannot be opened.
    """

    name = "gradwatch"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, project: str | None = None, *, run: Run | None = None, **settings: Any) -> None:
        super().__init__()
        self._own = OwnRun(run, {"project": project, **settings})

    @property
    def tracker(self) -> Run:
        """The run, opened at the first use."""
        return self._own.run

    @on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the configuration."""
        self._own.configure(values)

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **axes: Any) -> None:
        """`Run.log`."""
        self._own.run.log(values, step, **axes)

    @on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """The training is over."""
        self._own.finish()


def watch(accelerator: Accelerator, model: nn.Module, optimizer: Any, *, run: Run | None = None, **options: Any) -> Watcher:
    """Watch a model and an optimizer (or several) as `accelerator.prepare` returned them; `options` are those of `torch.watch`.

    One record for each step that accelerate lets the optimizer attempt, whatever `accelerator.accumulate` holds back, unscaled and
    before `accelerator.clip_grad_norm_`. `run` None is the tracker's, else the newest one.

    Raises SettingsError where they are not prepared or as `torch.watch` does. Under DeepSpeed, `deepspeed.watch_engine` knows more.
    """
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise SettingsError("DeepSpeed steps and clips by itself: use gradwatch_hooks.deepspeed.watch_engine(model)")
    optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    for one in optimizers:
        if not isinstance(one, AcceleratedOptimizer):
            raise SettingsError(f"a {type(one).__name__} is not prepared: give what accelerator.prepare returned")
    if run is None:
        run = _run_of(accelerator)
    return plain.watch(model, run=run, optimizer=optimizers, scaler=accelerator.scaler, **options)


def _run_of(accelerator: Accelerator) -> Run | None:
    """The tracker's run on the main process, else the newest."""
    for tracker in accelerator.trackers if accelerator.is_main_process else ():
        if isinstance(tracker, GradwatchTracker):
            return tracker.tracker
    newest: Run | None = lifecycle.newest()
    return newest
