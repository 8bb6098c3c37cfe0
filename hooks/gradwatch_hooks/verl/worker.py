"""Role gradients inside verl's training workers: around `FSDPEngine`'s forward passes and optimizer steps (verl 0.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch_hooks.verl.packing import Sequences, lengths_of, tokens_of
from gradwatch_hooks.verl.role_ids import read_role_ids, trainer_step
from gradwatch_hooks.verl.role_watch import OPTIMIZER, RoleWatch, argument
from gradwatch_hooks.watching.own_methods import OwnMethods

ENGINE_MODULE = "verl.workers.engine.fsdp.transformer_impl"
METHODS = ("forward_step", "prepare_model_inputs", "optimizer_step")


class EngineWatch(RoleWatch):
    """Watches one engine. Roles come from the field `role_ids` of each micro-batch, else from its `agent_id`."""

    def __init__(self, engine: Any, *, roles: Sequence[str], run: Run | None, steps: str, options: dict[str, Any]) -> None:
        super().__init__(
            engine,
            engine.module,
            engine.optimizer,
            getattr(engine, "scaler", None),
            roles=roles,
            run=run,
            steps=steps,
            # verl mixes roles over micro-batches and ranks, and reduces the gradients of all at once.
            options={"engine": "lora" if getattr(engine, "_is_lora", False) else "neutral", **options},
        )
        self._found: Sequences | None = None
        self.methods.wrap("forward_step", self._forward_step)
        self.methods.wrap("prepare_model_inputs", self._prepare_model_inputs)
        self.methods.wrap("optimizer_step", self.optimizer_step)

    def _forward_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """One micro-batch; forward-only ones give no gradient and have no roles."""
        self.close()
        self._found = None
        if not argument(args, kwargs, 2, "forward_only", False):
            with self.guard.within("EngineWatch.forward_step"):
                self._found = self._read(argument(args, kwargs, 0, "micro_batch"))
        return original(*args, **kwargs)

    def _read(self, batch: Any) -> Sequences | None:
        # Here, since the batch is still on the CPU: later, reading it would wait for the device.
        self.trainer_step = trainer_step(batch)
        ids = read_role_ids(batch, self.names) if self.names else None
        if ids is None:
            if self.names:
                self.guard.notices.once("ids", "no role gradients: the batches hold neither role_ids nor agent_id (add_role_ids)")
            return None
        return Sequences(ids.cpu(), lengths_of(batch["input_ids"]), tokens_of(batch["loss_mask"]))

    def _prepare_model_inputs(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The moment at which the rows that the model is given are known."""
        result = original(*args, **kwargs)
        found, self._found = self._found, None
        if found is not None and torch.is_grad_enabled():
            self.open(found, *result[0]["input_ids"].shape)
        return result


def watch_worker(
    worker: Any, run: Run | None = None, roles: Sequence[str] = (), *, steps: str = OPTIMIZER, **options: Any
) -> EngineWatch:
    """Watch the gradients of a verl worker's model, by role; call it on every rank, once the model is built.

    `worker` is an engine (`FSDPEngine`, FSDP2 or FSDP1), a `TrainingWorker`, or an `ActorRolloutRefWorker`, of which the actor is
    watched. `roles` are the names that the batches' `role_ids` index (`add_role_ids`), or that their `agent_id` says; without them
    there are norms only. `run` None is the newest run of this process, else the one that GRADWATCH_RUN_ID names is joined; only
    the first rank writes. A record is made for each optimizer step, before clipping: `steps="optimizer"` counts them;
    `steps="trainer"` takes the trainer's step from the batch (`global_steps`), and fits where an update is one optimizer step.
    `options` are those of `gradwatch_hooks.torch.watch` (max_overhead, policy, first_step ...); `engine` is `neutral`, for a
    LoRA model `lora`, unless another is given: both tell roles apart whatever micro-batches and ranks they are spread over.

    Raises SettingsError for a worker that trains nothing or has other methods than these, and what `watch` raises. Ulysses sequence
    parallelism: norms, but no roles.
    """
    engine = engine_of(worker)
    if missing := [name for name in METHODS if not hasattr(engine, name)]:
        raise SettingsError(f"watch_worker: {type(engine).__name__} has no {', '.join(missing)}; it needs verl's FSDPEngine")
    if getattr(engine, "optimizer", None) is None:
        raise SettingsError(
            f"watch_worker: {type(engine).__name__} has no optimizer: watch it after initialize(), and no reference"
        )
    return EngineWatch(engine, roles=roles, run=run, steps=steps, options=options)


def watch_engines(roles: Sequence[str] = (), *, steps: str = OPTIMIZER, **options: Any) -> Callable[[], None]:
    """Watch every engine that this process is going to initialize for training; arguments as for `watch_worker`.

    For a module that `VERL_USE_EXTERNAL_MODULES` has verl import in each of its processes. The watch of an engine is its attribute
    `gradwatch`; an engine that is initialized again is watched anew. Value models are watched under the policy `critic`, without
    roles. Returns what takes it back for engines to come. Raises ImportError where verl has no such engine.
    """

    def initialize(original: Callable[..., Any], engine: Any, *args: Any, **kwargs: Any) -> Any:
        if (before := getattr(engine, "gradwatch", None)) is not None:
            before.detach()
        result = original(engine, *args, **kwargs)
        if getattr(engine, "optimizer", None) is not None:
            is_critic = "ValueHead" in type(engine).__name__
            own = {**options, "policy": "critic"} if is_critic else options
            engine.gradwatch = watch_worker(engine, roles=() if is_critic else roles, steps=steps, **own)
        return result

    methods = OwnMethods(import_module(ENGINE_MODULE).FSDPEngine)
    methods.wrap("initialize", initialize)
    return methods.restore


def engine_of(worker: Any) -> Any:
    """The engine inside a worker: `engine`, or that of its `actor`."""
    inner = getattr(worker, "actor", None) or worker
    return getattr(inner, "engine", inner)
