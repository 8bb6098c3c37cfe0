"""Role gradients of one optimizer step after another: who speaks, which engine measures, and what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.engines.engine import Engine
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles, assign_roles
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.cast import Cast, Name
from gradwatch_hooks.watching.counts import count_speakers
from gradwatch_hooks.watching.engine_choice import ENGINES, EngineChoice
from gradwatch_hooks.watching.guard import Guard
from gradwatch_hooks.watching.spread import Spread

CODES = {name: float(code) for code, name in enumerate(ENGINES, 1)}


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRoles:
    """A step's roles on the device: what the engine read of them, and each speaker's count (K,)."""

    reading: RoleGradReading
    counts_K: Tensor


class RoleSteps:
    """Opens and closes roles within a step, and concludes the step.

    `is_measured` says whether this step is measured at all; roles are checked and counted in any case.
    """

    def __init__(self, cast: Cast, choice: EngineChoice, spread: Spread, guard: Guard) -> None:
        self._guard = guard
        self._cast = cast
        self._choice = choice
        self._spread = spread
        self.is_measured = True
        self.is_open = self._is_over = False
        self._engine: Engine | None = None
        self._why = ""
        self._counts: Tensor | None = None
        self.sequences = 0

    @property
    def was_said(self) -> bool:
        """Whether roles were given in this step."""
        return self._counts is not None

    def open(
        self,
        ids: Tensor | Sequence[int | str],
        names: Sequence[Name] | None,
        sequences: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Say who speaks in the forward passes up to `close`. Raises SettingsError where ids or names are wrong."""
        if isinstance(ids, Tensor) or not any(isinstance(one, str) for one in ids):
            self._cast.declare(names)
        else:
            if names is not None:
                self._cast.declare(names)
            ids = torch.tensor([self._cast.index(one, "") if isinstance(one, str) else one for one in ids])
        known = len([one for one in self._cast.speakers if one.role])
        self._open(assign_roles(ids, known, sequences), mask)

    def open_one(self, role: str, agent: str, mask: Tensor | None = None) -> None:
        """Say that everything up to `close` is one speaker's. Raises SettingsError for an unknown one."""
        self._open(BatchRoles(0, torch.tensor([self._cast.index(role, agent)])), mask)

    def close(self) -> None:
        """The forward passes and backward of the open roles are over."""
        self.is_open = False
        if self._engine is not None:
            self._engine.end()

    def lose(self, why: str) -> None:
        """Nothing true can be said of this step's roles any more."""
        if self._engine is not None:
            self._engine.end()
        self._engine, self._why = None, self._why or why

    def conclude(self, loss_scale: Tensor | float) -> MeasuredRoles | Unavailable | None:
        """What was measured since `clear`; None where nothing was to be. All processes of the spread have to call it together."""
        if not self.is_measured:
            return None
        if self._spread.group is not None:
            return self._together(loss_scale)
        if self._engine is None or self._counts is None:
            return Unavailable(self._why) if self._why else None
        return self._read(self._engine, self._engine.sums(), self._counts, loss_scale)

    def clear(self) -> None:
        """Begin the next step."""
        self._choice.clear()
        self._engine, self._why, self._counts, self.sequences = None, "", None, 0

    def detach(self) -> None:
        """Leave the model as it was, for good."""
        self._is_over = True
        self._choice.detach()

    def _open(self, batch: BatchRoles, mask: Tensor | None) -> None:
        if self._is_over:
            return
        if self.is_open:
            raise SettingsError("roles are still open: leave their `with` block before the next (or call close_roles())")
        counts = count_speakers(batch, self._cast.size, mask)
        self._counts = counts if self._counts is None else self._counts + counts
        self.sequences += len(batch.speaker_N)
        self.is_open = True
        if self.is_measured and not self._why and len(batch.speaker_N):
            self._begin(batch)

    def _begin(self, batch: BatchRoles) -> None:
        engine = self._choice.of(batch)
        if isinstance(engine, Unavailable):
            self._why, self._engine = engine.reason, None
        elif self._engine is not None and engine is not self._engine:
            self._why = (
                f"a step that began with the engine {self._engine.name!r} went on with batches for {engine.name!r}; steps from the "
                "next on are measured by that"
            )
            self._engine = None
        else:
            self._engine = engine
            engine.begin(batch)

    def _together(self, loss_scale: Tensor | float) -> MeasuredRoles | Unavailable | None:
        """The reading over several processes: first whether all measured the same way, then their sums and counts at once."""
        sums = self._own_sums()
        code = CODES[self._engine.name] if self._engine is not None and sums is not None else 0.0
        if self._spread.differ(code):
            self._choice.mixed()
            own = self._why or (self._engine.name if self._engine is not None else "no roles")
            return Unavailable(f"processes measured this step in different ways (rank {self._spread.rank}: {own})")
        if self._engine is None or self._counts is None or sums is None:
            return Unavailable(self._why) if self._why else None
        counts = self._counts.to(sums.device)
        shared = self._spread.mean_(torch.cat([sums.reshape(-1), counts]))
        counts = shared[-len(counts) :] * self._spread.size
        got = self._read(self._engine, shared[: sums.numel()].view(sums.shape), counts, loss_scale)
        if isinstance(got, Unavailable):
            # As where gradients of several micro-batches are reduced together: what looks at single backwards will not do there.
            self._choice.mixed()
        return got

    def _own_sums(self) -> Tensor | None:
        """The sums of this process alone. A failure must not keep it from the collective that the others wait in."""
        sums = None
        if self._engine is not None:
            with self._guard.within("Engine.sums"):
                sums = self._engine.sums()
            if sums is None:
                self._why = f"what the engine {self._engine.name!r} measured does not add up over processes"
        return sums

    @staticmethod
    def _read(engine: Engine, sums: Tensor | None, counts: Tensor, loss_scale: Tensor | float) -> MeasuredRoles | Unavailable:
        got = engine.conclude(sums, loss_scale)
        return got if isinstance(got, Unavailable) else MeasuredRoles(got, counts)
