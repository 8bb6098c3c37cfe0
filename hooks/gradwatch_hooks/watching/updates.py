"""How far an optimizer step moves the weights, at some steps: comparing them costs a copy of a part of each."""

from __future__ import annotations

from gradwatch.quantities.parameter_groups import ParameterGroups
from gradwatch.quantities.unavailable import Unavailable
from gradwatch.quantities.update_ratio import UpdateRatio, UpdateRatioReading

UPDATE_EVERY = 10  # steps that are made


class Updates:
    """Compares weights before and after the first of every `every` steps; 0: never."""

    def __init__(self, groups: ParameterGroups, every: int) -> None:
        self._ratio = UpdateRatio(groups)
        self._every = every
        self._made = 0
        self._step: int | None = None

    def regroup(self, groups: ParameterGroups) -> None:
        """Other parameters from now on."""
        self._ratio = UpdateRatio(groups)
        self._step = None

    def before(self, step: int) -> None:
        """The step `step` is about to be made."""
        if self._every and self._made % self._every == 0:
            self._ratio.before()
            self._step = step
        self._made += 1

    def after(self) -> tuple[int, UpdateRatioReading | None]:
        """The step whose ratio was measured just now, and the ratio; None where none was."""
        if self._step is None:
            return 0, None
        step, self._step = self._step, None
        reading = self._ratio.after()
        return step, None if isinstance(reading, Unavailable) else reading
