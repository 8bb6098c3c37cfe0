"""`watch`: gradient health of any PyTorch training loop, by role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.distributed import ProcessGroup

from gradwatch.client.run import Run
from gradwatch.quantities.budget import DEFAULT_OVERHEAD
from gradwatch.quantities.parameter_groups import MAX_GROUPS
from gradwatch_hooks.watching.cast import Name
from gradwatch_hooks.watching.engine_choice import AUTO
from gradwatch_hooks.watching.record import StepRecord
from gradwatch_hooks.watching.watcher import Watcher

__all__ = ["StepRecord", "Watcher", "watch"]


def watch(
    model: nn.Module,
    *,
    run: Run | None = None,
    optimizer: Any = None,
    scaler: Any = None,
    roles: Sequence[Name] = (),
    engine: str = AUTO,
    max_overhead: float | None = DEFAULT_OVERHEAD,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    depth: int | None = None,
    max_groups: int = MAX_GROUPS,
    locate: bool = True,
    process_group: ProcessGroup | None = None,
    policy: str = "",
    first_step: int = 0,
    on_record: Callable[[StepRecord], None] | None = None,
) -> Watcher:
    """Watch the gradients of a model: one record for each attempted optimizer step, unscaled and before clipping.

    `optimizer` (or several in a list) says when a step is attempted, `scaler` (a GradScaler) when one is skipped; without an
    optimizer, call `Watcher.emit` once a step. `run` None is the newest of `gradwatch.init`. `roles` are the names that role ids
    index: roles, or pairs (role, agent) where a role has several instances. They may be left out on one process: the first call
    of `Watcher.roles` names them. `engine` is how roles are measured: `auto` changes no gradient bit; `split` measures every role
    exactly at every step, and changes gradients by rounding. `max_overhead` is the share of the training time that role gradients
    may take: where it would be more they are measured at some steps only, and a line on the log says so; None measures every step.
    `include` and `exclude` are globs (or `re:` expressions) of parameter names, `depth` and `max_groups` choose the module groups.
    `locate` names the module in which NaN or infinities first appear. Of several processes, the first of `process_group` logs what
    all share. `policy` names the set of weights where a run trains several.

    Raises SettingsError where nothing can be watched so: no trainable parameter, a model that is watched already, an optimizer of
    other weights, an unknown engine, no run. Nothing raises into the training after the first step.
    """
    optimizers = list(optimizer) if isinstance(optimizer, Iterable) else [] if optimizer is None else [optimizer]
    return Watcher(
        model,
        run,
        optimizers,
        scaler,
        roles,
        engine=engine,
        max_overhead=max_overhead,
        include=include,
        exclude=exclude,
        depth=depth,
        max_groups=max_groups,
        locate=locate,
        process_group=process_group,
        policy=policy,
        first_step=first_step,
        on_record=on_record,
    )
