"""What verl's engine and the actor of its older versions have in common: roles around each micro-batch, a record for each step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from torch import nn

import gradwatch
from gradwatch.client.lifecycle import active
from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch.settings import DISABLED
from gradwatch_hooks.torch import Watcher, watch
from gradwatch_hooks.verl.packing import Sequences, place
from gradwatch_hooks.watching.own_methods import OwnMethods

OPTIMIZER, TRAINER = "optimizer", "trainer"


class RoleWatch:
    """The watcher of one policy in a verl worker. `detach` (or a `with` statement) leaves the worker as it was.

    The roles of a micro-batch stay open until the next one or the optimizer's step, since its backward runs after the forward
    returned, and recomputes it under gradient checkpointing. A step that verl leaves out, because the norm is not finite, is
    recorded as skipped.
    """

    def __init__(
        self,
        owner: Any,
        model: nn.Module,
        optimizer: Any,
        scaler: Any,
        *,
        roles: Sequence[str],
        run: Run | None,
        steps: str,
        options: dict[str, Any],
    ) -> None:
        if steps not in (OPTIMIZER, TRAINER):
            raise SettingsError(f"steps={steps!r}: count the steps of the 'optimizer', or take those of the 'trainer'")
        self.names = list(roles)
        self.trainer_step: int | None = None
        self._by_trainer = steps == TRAINER
        run = run if run is not None else joined_run()
        self.watcher: Watcher = watch(model, run=run, optimizer=optimizer, scaler=scaler, roles=roles, **options)
        self.guard = self.watcher.guard
        self.methods = OwnMethods(owner)
        self._is_open = False

    def open(self, found: Sequences, rows: int, width: int) -> None:
        """Open the roles of a micro-batch that the model is given in this shape."""
        placed = None
        with self.guard.within("RoleWatch.open"):
            placed = place(found, rows, width)
            if placed is None:
                self.guard.notices.once(
                    "place",
                    f"no role gradients: the model is given ({rows}, {width}) tokens; its {len(found.lengths_B)} sequences hold "
                    f"{int(found.lengths_B.sum())}: with sequence parallelism there are norms only",
                )
        if placed is not None:
            self.watcher.open_roles(placed.ids, self.names, sequences=placed.sequences, mask=placed.mask)
            self._is_open = True

    def close(self) -> None:
        """The micro-batch whose roles are open is over."""
        if self._is_open:
            self._is_open = False
            self.watcher.close_roles()

    def optimizer_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around the worker's own step: clipping, and the optimizer's step or none."""
        self.close()
        if self._by_trainer and self.trainer_step is not None:
            self.watcher.step = self.trainer_step
        before = self.watcher.step
        result = original(*args, **kwargs)
        if self.watcher.step == before:
            self.watcher.emit(skipped=True)
        return result

    def detach(self) -> None:
        """Log what is left, and leave the worker as it was."""
        self.close()
        self.methods.restore()
        self.watcher.detach()

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Detach."""
        self.detach()


def joined_run() -> Run | None:
    """The run of this worker process: one that is open already (None), else that which the environment names.

    Only the first rank writes: the others get a run that goes nowhere.
    """
    if active():
        return None
    is_first = os.environ.get("RANK", "0") == "0"
    return gradwatch.init(quiet=True) if is_first else gradwatch.init(quiet=True, mode=DISABLED)


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    """An argument of a call that may be given by its place or its name."""
    return args[place] if place < len(args) else kwargs.get(name, default)
