"""The hook for DeepSpeed: the norm of the whole gradient, the loss scale and skipped steps of an engine.

engine, *_ = deepspeed.initialize(model=model, config=config)
with watch_engine(engine):
    ...
    engine.backward(loss)
    engine.step()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from gradwatch.client.run import Run
from gradwatch.client.start import newest
from gradwatch.errors import SettingsError
from gradwatch.quantities.grad_norm import GradNorms, measure_grad_norm
from gradwatch.quantities.parameter_groups import ParameterGroups, group_parameters
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.guard import Guard
from gradwatch_hooks.watching.own_methods import OwnMethods
from gradwatch_hooks.watching.record import StepRecord, to_log
from gradwatch_hooks.watching.registry import claim, release

__all__ = ["EngineWatcher", "watch_engine"]

NEEDED = ("step", "global_steps", "skipped_steps", "get_global_grad_norm", "module", "optimizer")


def watch_engine(
    engine: Any,
    *,
    run: Run | None = None,
    policy: str = "",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    depth: int | None = None,
) -> EngineWatcher:
    """Watch what `deepspeed.initialize` returned: one record for each step that the engine attempts, at its own `global_steps`.

    The norm is DeepSpeed's own global one, before clipping and over all ranks; where DeepSpeed does not compute it, it is absent,
    and the log says why: never 0 for unknown. A step that overflowed has the norm Inf and `step_skipped` 1. Only without ZeRO and
    in full precision do gradients lie whole on each process: there they are measured here, by module group too, which `include`,
    `exclude` and `depth` choose as for `torch.watch`. Gradients of roles are not known: ZeRO takes them apart during the backward.
    `run` None is the newest one; ranks beside the first need none.

    Raises SettingsError for what is no engine, for one that steps in `train_batch` (pipelines), and as `torch.watch` does.
    """
    missing = [name for name in NEEDED if not hasattr(engine, name)]
    if missing:
        raise SettingsError(f"a {type(engine).__name__} has no {missing[0]!r}: give the engine that deepspeed.initialize returned")
    if hasattr(engine, "train_batch"):
        raise SettingsError(f"a {type(engine).__name__} steps inside of train_batch, which cannot be watched")
    groups = group_parameters(engine.module, include=include, exclude=exclude, depth=depth)
    return EngineWatcher(engine, run if run is not None or engine.global_rank else newest(), policy, groups)


class Before(NamedTuple):
    """An engine before a call of `step`: what it counts, its loss scale, and what is known of the coming norm.

    `held` is the norm that the engine holds of an earlier step, `measured` is the norm where we measure it ourselves.
    """

    steps: int
    skipped: int
    loss_scale: float | None
    held: Any
    measured: GradNorms | Unavailable | None


class EngineWatcher:
    """What `watch_engine` returns; a context manager that detaches. `last` is the newest record, `failures` counts our errors."""

    def __init__(self, engine: Any, run: Run | None, policy: str, groups: ParameterGroups) -> None:
        self.guard = Guard()
        self.last: StepRecord | None = None
        self._engine, self._run, self._policy, self._groups = engine, run, policy, groups
        claim(groups.parameters)
        self._methods = OwnMethods(engine)
        self._methods.wrap("step", self._around)

    @property
    def failures(self) -> int:
        """How many errors of ours were swallowed."""
        return self.guard.failures

    def detach(self) -> None:
        """Leave the engine as it was."""
        self._methods.restore()
        release(self._groups.parameters)

    def __enter__(self) -> Self:
        """The watcher itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Detach."""
        self.detach()

    def _around(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = None
        with self.guard.within("EngineWatcher: before a step"):
            before = self._before()
        result = step(*args, **kwargs)
        with self.guard.within("EngineWatcher: the record of a step"):
            # Without a new step, this call ended one of several micro-batches.
            if before is not None and self._engine.global_steps > before.steps:
                self._record(before)
        return result

    def _before(self) -> Before:
        engine, scale = self._engine, loss_scale_of(self._engine)
        computes = hasattr(engine.optimizer, "_global_grad_norm")
        return Before(
            engine.global_steps,
            engine.skipped_steps,
            scale,
            engine.optimizer._global_grad_norm if computes else None,
            None if computes or not engine.is_gradient_accumulation_boundary() else self._measure(scale),
        )

    def _record(self, before: Before) -> None:
        engine = self._engine
        norms = before.measured or computed_norm(engine, before.held)
        self.last = record = StepRecord(
            engine.global_steps,
            skipped=engine.skipped_steps > before.skipped,
            grad_norm=norms.total if isinstance(norms, GradNorms) else None,
            why="" if isinstance(norms, GradNorms) else norms.reason,
            groups=norms.groups if isinstance(norms, GradNorms) else {},
            loss_scale=before.loss_scale,
        )
        if record.why:
            self.guard.notices.once(record.why, f"gradient norm unavailable at step {record.step}: {record.why}")
        if self._run is not None and engine.global_rank == 0:
            for metrics, role, agent, scope in to_log(record):
                self._run.log(metrics, record.step, role=role, agent=agent, policy=self._policy, scope=scope)

    def _measure(self, scale: float | None) -> GradNorms | Unavailable:
        """The norms of gradients that DeepSpeed leaves on the parameters, where they are whole."""
        engine = self._engine
        if getattr(engine, "has_moe_layers", False) or getattr(engine, "mpu", None) is not None:
            return Unavailable("experts or tensors are spread over processes, and DeepSpeed computes no norm without ZeRO or fp16")
        if engine.world_size > 1 and not getattr(engine, "managed_gradient_accumulation", lambda: True)():
            return Unavailable("with managed_gradient_accumulation=false gradients are summed over processes inside of the step")
        read = measure_grad_norm(self._groups, scale)
        return read if isinstance(read, Unavailable) else read.read()


def loss_scale_of(engine: Any) -> float | None:
    """What the engine multiplies the loss by, None in full precision and bf16."""
    scaler = getattr(engine, "torch_autocast_z0_gradscaler", None)
    if scaler is not None:
        return float(scaler.get_scale())
    return float(engine.optimizer.loss_scale) if engine.fp16_enabled() else None


def computed_norm(engine: Any, held: Any) -> GradNorms | Unavailable:
    """The norm that the engine computed in this step; what it still holds of an earlier one, or began with, is none."""
    norm = engine.get_global_grad_norm()
    if norm is None or norm is held:
        return Unavailable("DeepSpeed did not compute the norm in this step (zero_optimization.compute_grad_norm is false?)")
    # DeepSpeed's helpers say -1 where a sum was not finite.
    return GradNorms(float("nan") if norm < 0 else float(norm), {})
