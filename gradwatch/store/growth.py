"""Where a run's numbering goes on: as committed, and within a transaction that is still open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradwatch.schema import Series


class Tail(NamedTuple):
    """What a run's next append builds on: its series' ids, its last sequence number and its last sample number."""

    series: dict[Series, int]
    sequence: int
    sample: int


class Growth:
    """A tail that grows inside a transaction; the old tail stays as it was until `tail` adopts what was committed."""

    def __init__(self, tail: Tail) -> None:
        self._known = tail.series
        self.fresh: dict[Series, int] = {}
        self.sequence = tail.sequence
        self.sample = tail.sample
        self.next_batch()

    def next_batch(self) -> None:
        """Forget how far the batch before this one got."""
        self._attempt = 1
        self._last_step: int | None = None

    def ids(self, series: Sequence[Series]) -> list[int | None]:
        """Their ids, None for one that has none yet."""
        # Most batches have no new series, and map asks for all of them without running any code of ours.
        found = list(map(self._known.get, series))
        return [self._known.get(one, self.fresh.get(one)) for one in series] if None in found else found

    def count(self, points: int, attempt: int, last_step: int | None) -> None:
        """Points were added; `last_step` is the highest one of theirs in `attempt`."""
        self.sequence += points
        if last_step is None or attempt < self._attempt:
            return
        before = self._last_step if attempt == self._attempt else None
        self._attempt, self._last_step = attempt, last_step if before is None else max(before, last_step)

    def row(self, run: str, batch_id: str | None) -> tuple[object, ...]:
        """The batch as the table keeps it."""
        return run, batch_id, self.sequence, self.sample, self._attempt, self._last_step

    def tail(self) -> Tail:
        """The tail after the commit."""
        self._known.update(self.fresh)
        return Tail(self._known, self.sequence, self.sample)
