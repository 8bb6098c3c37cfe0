"""Gives the rows of a console log the training bar's steps.

Rows and clears of the bar come in the same order, but rarely at the same place: a buffered stdout delivers a hundred
rows at once, long after (or, in a reordered capture, before) the bar stood there. So the k-th row belongs to the k-th
clear. A row's `epoch` has two decimals and cannot give the step, but it can refute one: the steps of an epoch stay the
same in a run.
"""

from __future__ import annotations

import math
from collections import deque

from gradwatch.importers.base import Row
from gradwatch.importers.progress_bar import TrainingBar, parse_bar
from gradwatch.importers.source import MisjudgedError

MAX_HELD = 4096
"""Rows held back while no bar has been seen; after that the log is taken to have none."""

MAX_AT_ONE_DRAWING = 3
"""Rows under one drawing of a bar that is never cleared: log, evaluation and summary. More come from a buffer."""

MAX_MARKS = 1_000_000


class EpochRatio:
    """The range of steps per epoch that all rows so far agree with."""

    def __init__(self) -> None:
        self._low, self._high = 0.0, math.inf

    def compare(self, step: int, epoch: float) -> int:
        """-1 where the step is too early for the epoch, 1 where it is too late, 0 where it fits."""
        low, high = self._bounds(step, epoch)
        if high < self._low:
            return -1
        return 1 if low > self._high else 0

    def narrow(self, step: int, epoch: float) -> None:
        """Take a step that fits into account."""
        low, high = self._bounds(step, epoch)
        self._low, self._high = max(self._low, low), min(self._high, high)

    @staticmethod
    def _bounds(step: int, epoch: float) -> tuple[float, float]:
        """The epoch's rounding either way, and one step for the short accumulation at an epoch's end."""
        if not 0 <= epoch < math.inf:
            return 0.0, math.inf
        rounding = epoch_rounding(epoch)
        high = (step + 1) / (epoch - rounding) if epoch > rounding else math.inf
        return max(0.0, step - 1) / (epoch + rounding), high


def epoch_rounding(epoch: float) -> float:
    """Half a unit of a printed epoch's last digit: two decimals, or four significant digits."""
    return max(0.00501, epoch * 0.0005)


class BarSteps:
    """Takes bars, blanks and rows in file order; gives the rows back, in order, with their step where it is known."""

    def __init__(self) -> None:
        self._bar = TrainingBar()
        self._marks: deque[tuple[int, int]] = deque(maxlen=MAX_MARKS)
        self._held: deque[tuple[Row, int | None]] = deque()
        self._ratio = EpochRatio()
        self._generation = 0
        self._epoch = -math.inf
        self._clears = False
        self._stood: tuple[int, frozenset[str]] | None = None
        self._gave_up = False
        self.early = 0
        """Rows that were let go while no bar had been seen, and would else still be held."""

    def see_bar(self, segment: str) -> list[Row]:
        """A segment that may hold a bar; returns the rows that it settles."""
        bar = parse_bar(segment)
        if bar is None:
            return []
        generation, was_complete = self._bar.generation, self._bar.complete
        mark = self._bar.see_bar(bar)
        if self.early and self._bar.step is not None:
            raise MisjudgedError("its first rows were taken to have no progress bar, and now there is one")
        rows: list[Row] = []
        if self._bar.generation != generation:
            rows = self._release(early=False)
            if not was_complete:
                # The run was cut off: what it had not printed by now it never will.
                self._marks.clear()
        if mark is not None:
            self._add(mark)
        return rows + self._settle(drawn=True) if self._held else rows

    def see_blank(self, segment: str, opens_line: bool, returns: bool) -> None:
        """A blank segment; whether it is its line's first, and whether carriage returns surround it."""
        self._bar.see_blank(segment, opens_line, returns)

    def see_row(self, row: Row) -> list[Row]:
        """A row; returns the rows that can go, which may include this one."""
        self._held.append((row, None if self._bar.rivalled else self._bar.step))
        if len(self._held) <= MAX_HELD:
            return self._settle()
        self._gave_up = self._gave_up or self._bar.step is None
        return self._release(early=True)

    def settle(self) -> list[Row]:
        """The rows that are held only in case that a bar comes, while none has."""
        if self._bar.step is not None or self._gave_up:
            return []
        rows = self._release(early=True)
        self.early += len(rows)
        if self.early > MAX_HELD:
            self.early, self._gave_up = 0, True
        return rows

    def finish(self) -> list[Row]:
        """The end of the log; returns the rows still held."""
        mark = self._bar.finish()
        if mark is not None:
            self._add(mark)
        return self._settle(drawn=True) + self._release(early=True)

    def _add(self, mark: int) -> None:
        self._clears = True
        self._marks.append((self._bar.generation, mark))

    def _settle(self, drawn: bool = False) -> list[Row]:
        """The held rows, from the first on, whose step is decided by now, which without clears a drawing does."""
        rows = []
        bulk = len(self._held) > MAX_AT_ONE_DRAWING
        while self._held:
            row, standing = self._held[0]
            epoch = row.values.get("epoch", math.nan)
            # Trainers put an epoch into every log; a dict without one was printed by someone else and has no clear.
            if not (self._gave_up or (math.isnan(epoch) and self._epoch >= 0)):
                row.step = self._mark(epoch)
                if row.step is None and not self._marks:
                    if not drawn or self._clears or self._bar.pending or self._held[-1][1] is None:
                        break
                    row.step = None if bulk else self._standing(standing, row)
            self._held.popleft()
            rows.append(row)
        return rows

    def _release(self, early: bool) -> list[Row]:
        """The held rows with where the bar stood when they came; rows from before any bar only where `early`."""
        rows = []
        bulk = len(self._held) > MAX_AT_ONE_DRAWING
        while self._held and (early or self._held[0][1] is not None):
            row, standing = self._held.popleft()
            row.step = None if bulk else self._standing(standing, row)
            rows.append(row)
        return rows

    def _mark(self, epoch: float) -> int | None:
        """The earliest unused mark that the epoch does not refute."""
        if epoch < self._epoch - 2 * epoch_rounding(self._epoch) and self._bar.generation > self._generation:
            self._start_over()
        while self._marks:
            generation, step = self._marks[0]
            if generation != self._generation:
                self._generation, self._ratio = generation, EpochRatio()
            verdict = self._ratio.compare(step, epoch)
            if verdict > 0:
                return None
            self._marks.popleft()
            if verdict == 0:
                self._take(step, epoch)
                return step
        return None

    def _standing(self, step: int | None, row: Row) -> int | None:
        """Where the bar stood, for a row whose bar was not cleared."""
        if step is None:
            return None
        if self._bar.generation != self._generation:
            self._start_over()
        epoch, keys = row.values.get("epoch", math.nan), frozenset(row.values)
        if (step, keys) == self._stood:
            step += 1  # the same metrics are logged once a step: the bar's drawing in between was lost
        if self._ratio.compare(step, epoch) != 0:
            return None
        self._stood = (step, keys)
        self._take(step, epoch)
        return step

    def _take(self, step: int, epoch: float) -> None:
        self._ratio.narrow(step, epoch)
        self._bar.used = True
        if not math.isnan(epoch):
            self._epoch = epoch

    def _start_over(self) -> None:
        old, self._ratio, self._epoch = self._generation, EpochRatio(), -math.inf
        while self._marks and self._marks[0][0] <= old:
            self._marks.popleft()
        self._generation = self._bar.generation
