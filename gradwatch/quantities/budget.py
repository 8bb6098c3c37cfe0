"""How often to measure, so that measuring stays below a share of the training time. Pure: the clock is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil
from statistics import median
from typing import NamedTuple

from gradwatch.errors import SettingsError

DEFAULT_OVERHEAD = 0.03
LONGEST = 1_000_000  # steps between two measurements, where a step takes no time that the clock can see


class Decision(NamedTuple):
    """Whether to measure at this step, every how many steps it is done now, and what there is to say of a change."""

    measure: bool
    every: int
    message: str = ""


class Budget:
    """Measures every step while that is cheap, more rarely where it is not, and again often once it has become cheap.

    A measurement of c seconds has to be followed by c·(1 − m)/m seconds of training before the next, m = `max_overhead`: at every
    measurement, the time measured so far is then at most the share m of all time so far. What a wrong guess of the steps' length
    leaves over is added to the next wait. `max_overhead=None` measures every step.

    Processes that measure together must do so at the same steps: then `agree` is given, a function that makes one number of all
    processes' numbers (their largest); it is called by each at the step after each measurement. Raises SettingsError where
    `max_overhead` is not between 0 and 1.
    """

    def __init__(self, max_overhead: float | None = DEFAULT_OVERHEAD, agree: Callable[[float], float] = lambda wait: wait) -> None:
        if max_overhead is not None and not 0 < max_overhead < 1:
            raise SettingsError(f"max_overhead={max_overhead}: must be a share between 0 and 1, such as 0.03, or None for no limit")
        self.max_overhead = max_overhead
        self._agree = agree
        self._every = self._said = 1
        self._since = 0
        self._last: float | None = None
        self._unplanned = False
        self._cost = self._owed = self._due = self._in_step = 0.0
        self._measured = self._whole = 0.0
        self._steps: deque[float] = deque(maxlen=32)

    @property
    def overhead(self) -> float:
        """The share of all time so far that went into measuring."""
        return self._measured / self._whole if self._whole else 0.0

    def decide(self, now: float) -> Decision:
        """Whether to measure at the step that begins or ends at `now`, in seconds of a clock that never runs backwards.

        To be called once a step, always at the same place in it.
        """
        message = ""
        if self._last is None:
            # What was measured before the first call lies in a step whose length is not known.
            self._in_step = 0.0
        else:
            self._pass(now - self._last)
            message = self._plan() if self._unplanned else ""
        self._last = now
        self._since += 1
        measure = self._since >= self._every
        if measure:
            self._since, self._unplanned = 0, self.max_overhead is not None
        return Decision(measure, self._every, message)

    def measured(self, seconds: float) -> None:
        """Tell what the measurement took, in seconds; that may be some steps late, where a device tells it late."""
        self._cost = seconds
        self._measured += seconds
        self._in_step += seconds
        if self.max_overhead is not None:
            self._owed += seconds * (1 - self.max_overhead) / self.max_overhead
            self._due = self._owed

    def _pass(self, elapsed: float) -> None:
        step = max(0.0, elapsed - self._in_step)
        self._in_step = 0.0
        self._whole += elapsed
        self._steps.append(step)
        self._owed = max(0.0, self._owed - step)

    def _plan(self) -> str:
        self._unplanned = False
        step = median(self._steps)
        wait = self._agree(self._due / max(step, 1e-9))
        self._due = self._owed
        self._every = _steps(wait)
        # A wait that wavers about a whole number of steps is not news: it has to fall clearly before that is said.
        rarer, oftener = self._every >= 2 * self._said, 2 * _steps(1.25 * wait) <= self._said
        if not rarer and not oftener:
            return ""
        self._said = self._every
        return f"measuring takes {_duration(self._cost)} and a step {_duration(step)}: {self._rhythm()}"

    def _rhythm(self) -> str:
        if self._every == 1:
            return "every step is measured again"
        share = f"{100 * (self.max_overhead or 1):.3g} %"
        return f"one step in {self._every} is measured, to stay below {share} of the time (max_overhead)"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _steps(wait: float) -> int:
    return max(1, ceil(min(wait, LONGEST)))
