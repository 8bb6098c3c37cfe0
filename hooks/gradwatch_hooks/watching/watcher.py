"""The watcher of one model: joins what is read of its gradients with what is said of its roles, a record a step."""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.distributed import ProcessGroup

from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.nonfinite_locator import NonfiniteLocator
from gradwatch.quantities.parameter_groups import ParameterGroups, group_parameters
from gradwatch.quantities.per_role import RoleReading
from gradwatch.quantities.policy import PolicyBatch, measure_policy
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch.quantities.sharding import flat_parameters
from gradwatch_hooks.watching.attempts import Attempts, unwrap
from gradwatch_hooks.watching.cast import Cast, Name
from gradwatch_hooks.watching.engine_choice import EngineChoice
from gradwatch_hooks.watching.gradients import Gradients, of_model, trained
from gradwatch_hooks.watching.guard import Guard
from gradwatch_hooks.watching.held_samples import HeldSamples
from gradwatch_hooks.watching.later import Later
from gradwatch_hooks.watching.numbers import StepNumbers, reading_of
from gradwatch_hooks.watching.overhead import Overhead
from gradwatch_hooks.watching.publisher import Publisher, run_to_log_to
from gradwatch_hooks.watching.record import StepRecord, to_record
from gradwatch_hooks.watching.registry import claim, release
from gradwatch_hooks.watching.role_steps import RoleSteps
from gradwatch_hooks.watching.sequence_figures import SequenceFigures
from gradwatch_hooks.watching.spread import spread_of
from gradwatch_hooks.watching.updates import UPDATE_EVERY, Updates

LOGGER = logging.getLogger("gradwatch")


class Watcher:
    """What `watch` returns. Nothing of it raises into the training once the first step is made, and none of it waits for a device.

    `step` is the step of the coming record; a loop that counts its own steps, or resumes, sets it. `last` is the newest record
    that has been read. `failures` counts what went wrong inside: each kind is told once on the log.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Run | None,
        optimizers: list[Any],
        scaler: Any,
        roles: Sequence[Name],
        *,
        engine: str,
        max_overhead: float | None,
        include: Sequence[str],
        exclude: Sequence[str],
        depth: int | None,
        max_groups: int,
        locate: bool,
        process_group: ProcessGroup | None,
        policy: str,
        first_step: int,
        on_record: Callable[[StepRecord], None] | None,
    ) -> None:
        self.guard = Guard()
        self.step = first_step
        self.last: StepRecord | None = None
        self._model, self._scaler, self._on_record = model, scaler, on_record
        self._group = partial(group_parameters, model, include=include, exclude=exclude, depth=depth, max_groups=max_groups)
        groups = self._group()
        self._spread = spread_of(model, groups.parameters, process_group)
        may_be_none = on_record is not None or self._spread.rank > 0
        chosen = run_to_log_to(run, may_be_none)
        self._publisher = Publisher(chosen, policy, self._spread.rank == 0, self.guard.notices)
        steppers = [unwrap(one) for one in optimizers]
        if steppers and trained(steppers).isdisjoint(id(one.parameter) for one in groups.parameters):
            raise SettingsError(
                "the optimizer steps none of this model's parameters: give the one that was made of them; where wrapping replaces "
                "parameters (FSDP), wrap the model, make the optimizer, then watch"
            )
        self._cast = Cast(roles, must_be_declared=self._spread.group is not None)
        self._choice = EngineChoice(engine, self._target)
        self._roles = RoleSteps(self._cast, self._choice, self._spread, self.guard)
        self._overhead = Overhead(max_overhead, self._spread)
        claim(groups.parameters)
        self._locates = locate
        self._gradients = self._gradients_of(groups)
        self._attempts = Attempts(steppers, scaler, self._attempted, lambda: self._gradients.is_fresh, self._made)
        self._updates = Updates(groups, UPDATE_EVERY if steppers else 0)
        self._figures = SequenceFigures()
        self._samples, self._later = HeldSamples(), Later()
        self._is_first, self._is_over = True, False
        self._at_exit = partial(_flush, weakref.WeakMethod(self.flush))
        atexit.register(self._at_exit)

    @property
    def failures(self) -> int:
        """How many errors of ours, or wrong calls in flight, were swallowed."""
        return self.guard.failures

    @property
    def overhead(self) -> float:
        """The share of all time so far that went into measuring roles."""
        return self._overhead.share

    @property
    def is_measuring(self) -> bool:
        """Whether the roles of this step are measured: the budget may leave it out."""
        return self._roles.is_measured

    @contextmanager
    def roles(
        self,
        ids: Tensor | Sequence[int | str],
        names: Sequence[Name] | None = None,
        *,
        sequences: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Iterator[None]:
        """Say who speaks in the forward passes and the backward within.

        `ids` are whole numbers that index `names`: (B,), a sequence's speaker, or (B, T), a position's, -1 is nobody; or a list of
        names, one for each sequence. Give them on the CPU: a tensor on a device costs a host sync. `sequences` (B, T) tells packed
        sequences apart. `mask`, the loss's own (B, T) or the tokens of each sequence (B,), makes counts in tokens. Raises
        SettingsError where they are wrong, before the first step is made; later that is told once and counted, and the step's roles
        are not measured.
        """
        self.open_roles(ids, names, sequences=sequences, mask=mask)
        with self._closing():
            yield

    @contextmanager
    def role(self, role: str, agent: str = "", *, mask: Tensor | None = None) -> Iterator[None]:
        """Say that all within, forward passes and backward, is one role's, or one instance's of it. Errors as for `roles`."""
        with self._opening("Watcher.role"):
            self._roles.open_one(role, agent, mask)
        with self._closing():
            yield

    def open_roles(
        self,
        ids: Tensor | Sequence[int | str],
        names: Sequence[Name] | None = None,
        *,
        sequences: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """`roles` for loops whose forward and backward are in different places; `close_roles` ends it."""
        with self._opening("Watcher.roles"):
            self._roles.open(ids, names, sequences, mask)

    def close_roles(self) -> None:
        """The forward passes and the backward of the open roles are over."""
        with self.guard.within("Watcher.close_roles"):
            self._roles.close()

    def log(
        self, metrics: Mapping[str, Any], *, role: str = "", agent: str = "", scope: str = "", stream: str | None = None
    ) -> None:
        """`Run.log` at the step of the coming record."""
        self._publisher.log(metrics, self.step, role=role, agent=agent, scope=scope, stream=stream)

    def observe(self, measured: PolicyBatch | RoleReading) -> None:
        """Log quantities by role at the step of the coming record, read when the device has them: one host sync, no wait.

        `measured` is a batch of log-probabilities, or any reading of `gradwatch.quantities`. Give a whole step at once: of several
        calls for one metric the last stands. Raises SettingsError where shapes are wrong, before the first step is made.
        """
        with self._loud_at_first("Watcher.observe"):
            reading = measure_policy(measured) if isinstance(measured, PolicyBatch) else measured
            step = self.step
            self._later.give(reading.pack(), lambda numbers: self._publisher.by_role(reading.unpack(numbers), step))

    def log_samples(self, samples: Iterable[Any]) -> None:
        """`Run.log_samples` with the coming record, and each sample's influence on its gradient.

        Samples come in the order in which their sequences were given to `roles` in this step; a field `sequence` tells another
        place in that order, None none.
        """
        with self.guard.within("Watcher.log_samples"):
            self._samples.add(() if self._is_over else samples)

    def emit(self, *, skipped: bool = False) -> None:
        """Make the record of an attempted step; for loops without an optimizer here. Before gradients are cleared."""
        self._attempted(skipped)

    def flush(self) -> None:
        """Wait for what is still on the device, and log it."""
        with self.guard.within("Watcher.flush"):
            self._later.flush()

    def detach(self) -> None:
        """Log what is left, and leave model, optimizer and scaler as they were."""
        if self._is_over:
            return
        self._is_over = True
        if self._is_first:
            self.guard.notices.once(
                "steps",
                "no step was recorded: give watch(optimizer=...) the optimizer whose step() you call, or call emit() once a step",
            )
        self.flush()
        for part in (self._attempts, self._gradients, self._roles):
            with self.guard.within("Watcher.detach"):
                part.detach()
        release(self._gradients.groups.parameters)
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        """The watcher itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Detach."""
        self.detach()

    def _gradients_of(self, groups: ParameterGroups) -> Gradients:
        locator = NonfiniteLocator(self._model, groups.parameters, self._spread.rank) if self._locates else None
        return Gradients(groups, self._scaler, self.guard, locator, flat_parameters(self._model))

    def _target(self) -> Target:
        return Target(self._model, self._gradients.groups.parameters, self._cast.size, self._spread.group is not None)

    @contextmanager
    def _opening(self, where: str) -> Iterator[None]:
        """Roles that could not be opened leave a part of the step without any: nothing true is left to say of its roles."""
        is_open = False
        try:
            with self._loud_at_first(where):
                yield
                is_open = True
        finally:
            if not is_open:
                self._roles.lose("a part of the step was given roles that are wrong: the first such error is on the log")

    @contextmanager
    def _closing(self) -> Iterator[None]:
        is_whole = False
        try:
            yield
            is_whole = True
        finally:
            if not is_whole:
                self._roles.lose("an error ended a block of roles, and nothing tells what of it came into the gradient")
            self.close_roles()

    @contextmanager
    def _loud_at_first(self, where: str) -> Iterator[None]:
        """A wrong call before the first step is an error; later, and whatever else fails, is told once and counted."""
        wrong: SettingsError | None = None
        with self.guard.within(where):
            try:
                yield
            except SettingsError as error:
                if not self._is_first:
                    raise
                wrong = error
        if wrong is not None:
            raise wrong

    def _attempted(self, skipped: bool) -> None:
        if self._is_over:
            return
        with self.guard.within("the record of a step"):
            try:
                self._record(skipped)
                if not skipped:
                    self._updates.before(self.step)
            finally:
                self._next()

    def _made(self) -> None:
        """The weights have changed."""
        with self.guard.within("the update-to-weight ratio"):
            if self._gradients.is_fresh:  # what a closure's further evaluations left belongs to no step
                self._gradients.clear()
                self._roles.clear()
            step, reading = self._updates.after()
            if reading is not None:
                self._later.give(reading.pack(), lambda packed: self._publisher.update_ratios(reading.unpack(packed), step))

    def _record(self, skipped: bool) -> None:
        if self._roles.is_open:
            self.guard.notices.once("open", "roles were still open at the optimizer's step: it belongs after their `with` block")
            self._roles.close()
        if (self._is_first or not self._gradients.is_fresh) and not of_model(self._model, self._gradients.groups):
            self._wrapped_since()
        scale = self._gradients.loss_scale
        norms = self._gradients.norms()
        roles = self._roles.conclude(1.0 if scale is None else scale)
        reading = reading_of(roles)
        coverage = float("nan") if reading is None else self._gradients.coverage(reading.covered)
        place = self._gradients.place()
        if place is not None and self._spread.group is not None:
            place = place.over(self._spread.group)
        numbers = StepNumbers(self._spread.device, norms, scale, roles, self._cast.speakers, coverage, place)
        step, samples = self.step, self._samples.take()
        self._later.give(numbers.pack(), lambda packed: self._arrived(numbers, packed, step, skipped, samples))

    def _wrapped_since(self) -> None:
        """The model's parameters were replaced after `watch`, as FSDP does: watch those that it has now."""
        release(self._gradients.groups.parameters)
        self._gradients.detach()
        self._choice.detach()
        groups = self._group()
        claim(groups.parameters)
        self._gradients = self._gradients_of(groups)
        self._updates.regroup(groups)
        self.guard.notices.once(
            "wrapped",
            "the model's parameters were replaced after watch(): norms of this step may be clipped ones; watch it once wrapped",
        )

    def _next(self) -> None:
        """Begin the next step, whatever became of this one."""
        was_measured = self._roles.is_measured and self._roles.was_said
        self._gradients.clear()
        self._roles.clear()
        self.step += 1
        self._is_first = False
        decision = self._overhead.next_step(was_measured)
        self._roles.is_measured = decision.measure
        if decision.message:
            LOGGER.warning("gradwatch: role gradients: %s", decision.message)

    def _arrived(
        self, numbers: StepNumbers, packed: list[float], step: int, skipped: bool, samples: Sequence[Mapping[str, Any]]
    ) -> None:
        record = to_record(step, skipped, numbers.unpack(packed))
        if isinstance(record.roles, RoleGradients) and self._spread.group is None:
            record = replace(record, noise_scale=self._figures.noise_scale(record.roles))
        self.last = record
        self._publisher.record(record, samples)
        if self._on_record is not None:
            self._on_record(record)


def _flush(flush: weakref.WeakMethod[Callable[[], None]]) -> None:
    alive = flush()
    if alive is not None:
        alive()
