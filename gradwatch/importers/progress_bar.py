"""Progress bars on a console: how one is read, which is the training's, and at which steps it made way for a log line.

tqdm clears a bar with a blank segment before it lets a log line through and redraws it after. So a clear of the
training bar marks "a log was written at this step", even where the log lines sit in another stream's buffer for hours.
The redraw says the step: fast training draws the bar only every tenth of a second, so before a clear it may be stale.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gradwatch.importers.console_text import CURSOR_UP

_COUNT = re.compile(r"[^|]{0,600}+\| {0,8}(\d[\d,]{0,14})/(\d[\d,]{0,14})(?![\w.])")
_RICH_COUNT = re.compile(r"(\d[\d,]{0,14})/(\d[\d,]{0,14})(?![\w.])")
_TRAINING = re.compile(r"(?:train(?:ing)?(?: (?:progress|steps?|epoch.{0,20}))?|epochs?(?: .{0,20})?|steps?|iterations?)?", re.I)
_EPOCH = re.compile(r"epochs?:? {0,2}\[?(\d{1,7})(?:/(\d{1,7}))?", re.I)


class Bar(NamedTuple):
    """One drawing of a bar: `Epoch 1/6:  50%|…| 31/62 […]`."""

    name: str
    n: int
    total: int


def parse_bar(segment: str) -> Bar | None:
    """The last bar drawn in a segment, or None; bars that count bytes (`254M/254M`) are none of ours."""
    at = segment.rfind("%|")
    if at < 0:
        return _parse_rich(segment)
    found = _COUNT.match(segment, at + 2)
    if found is None:
        return None
    before = segment[max(0, at - 120) : at].rstrip("0123456789.")
    name = before[before.rfind("]", 0, -1) + 1 :] if "/it]" in before or "it/s]" in before else before
    return Bar(name.strip().rstrip(":").strip(), _int(found[1]), _int(found[2]))


def _parse_rich(segment: str) -> Bar | None:
    at = segment.rfind("━")
    found = _RICH_COUNT.search(segment, at + 1, at + 80) if at >= 0 else None
    return Bar("", _int(found[1]), _int(found[2])) if found else None


def _int(text: str) -> int:
    return int(text.replace(",", ""))


class TrainingBar:
    """Follows the training bar among all bars. `step` is where it stands; `generation` grows when it starts over."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.generation = 0
        self.complete = False
        self.used = False
        self._kind: tuple[str, int] | None = None
        self._first_epoch: int | None = None
        self._last: Bar | None = None
        self._last_is_training = False
        self._cleared = ""

    @property
    def pending(self) -> bool:
        """Whether the bar has been cleared for a log line and not yet been redrawn."""
        return self._cleared == "surely"

    @property
    def rivalled(self) -> bool:
        """Whether another bar that may be the training's was cleared last: the next drawing tells whose log it was."""
        return self._cleared == "maybe" and self._last is not None and not self._last_is_training

    def see_blank(self, segment: str, opens_line: bool, returns: bool) -> None:
        """A blank segment: a clear of the training bar unless it lies a line below or follows nobody's drawing."""
        if self._cleared or self.step is None or CURSOR_UP in segment:
            return
        if self._last_is_training:
            self._cleared = "surely" if returns else "maybe"
        elif not opens_line:
            self._cleared = "maybe"

    def see_bar(self, bar: Bar) -> int | None:
        """A drawn bar; the step of the log line whose clear this drawing confirms, if it does."""
        cleared, self._cleared = self._cleared, ""
        training = self._is_training(bar, cleared)
        self._last, self._last_is_training = bar, training
        if not training:
            return self.step if cleared == "surely" else None
        step, before = self._absolute(bar), self.step
        if before is not None and step < before:
            self.generation += 1
            cleared = ""
        self.step, self.complete = step, bar.n >= bar.total
        if cleared == "surely" or (cleared == "maybe" and step == before):
            self.used = True
            return step
        return None

    def finish(self) -> int | None:
        """The step of a last clear that no drawing followed."""
        pending, self._cleared = self.pending, ""
        return self.step if pending else None

    def _is_training(self, bar: Bar, cleared: str) -> bool:
        kind = _kind(bar.name, bar.total)
        if kind is None:
            return False
        if kind == self._kind:
            return True
        if self._kind is None or (self.complete and not self.used) or self._is_rival(bar, cleared):
            self.generation += self._kind is not None
            self._kind, self.step, self._first_epoch = kind, None, None
            if cleared:
                self.step = self._absolute(bar)
            return True
        return False

    def _is_rival(self, bar: Bar, cleared: str) -> bool:
        """A bar of another length takes over only when it is cleared for a log line and redrawn where it stood."""
        return bool(cleared) and self._last == bar and not self._last_is_training

    def _absolute(self, bar: Bar) -> int:
        """The step over all epochs where a bar counts the steps of one epoch."""
        found = _EPOCH.search(bar.name) if bar.name else None
        if found is None:
            return bar.n
        epoch = int(found[1])
        if self._first_epoch is None:
            self._first_epoch = 1 if found[2] else min(epoch, 1)
        return max(0, epoch - self._first_epoch) * bar.total + bar.n


@lru_cache(maxsize=1024)
def _kind(name: str, total: int) -> tuple[str, int] | None:
    """What two drawings of the training bar have in common; None for a bar that names another job."""
    if len(name) > 40 or _TRAINING.fullmatch(name) is None:
        return None
    return re.sub(r"[\d/\[\] ]+", " ", name).strip().lower(), total
