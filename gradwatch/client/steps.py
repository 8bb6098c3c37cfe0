"""Steps of calls that give none: each stream counts its own calls."""

from __future__ import annotations

from gradwatch.client.records import Metrics
from gradwatch.metrics import resolve


class StepCounter:
    """The next step of each stream: one after its last, from 0."""

    def __init__(self) -> None:
        self._base: dict[str, int | None] = {}
        self._since: dict[str, int] = {}

    def next(self, stream: str) -> int:
        """The step after the stream's last one, which it becomes."""
        self._since[stream] = self._since.get(stream, 0) + 1
        return (self._base.get(stream) or 0) + self._since[stream] - 1

    def at(self, stream: str, step: int) -> None:
        """The stream's last step was given."""
        self._base[stream], self._since[stream] = step + 1, 0

    def last(self, stream: str) -> int:
        """The stream's last step, 0 before the first."""
        return max((self._base.get(stream) or 0) + self._since.get(stream, 0) - 1, 0)

    def skip(self, record: Metrics) -> None:
        """Count a call whose values were dropped."""
        given = record.context.stream
        for stream in {given or resolve(str(key)).stream for key in record.values}:
            if type(record.step) is int:
                self.at(stream, record.step)
            else:
                self.next(stream)

    def follow(self, skipped: StepCounter) -> None:
        """Count what `skipped` has counted since it was new, after what was counted here."""
        for stream, since in skipped._since.items():
            base = skipped._base.get(stream)
            if base is not None:
                self._base[stream], self._since[stream] = base, since
            else:
                self._since[stream] = self._since.get(stream, 0) + since
