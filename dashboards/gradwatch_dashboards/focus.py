"""From an address and a run's findings to what is looked at: attempt, range of steps, step, role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gradwatch.schema import Span, StoredFinding
from gradwatch_dashboards.figures.metric import Frame
from gradwatch_dashboards.view import View

AROUND = 12
"""Steps that are shown on either side of a finding, at least."""


class Focus(NamedTuple):
    """What a run's page shows. `finding` is the chosen one; `extent` all steps of the attempt, `steps` those that are seen."""

    attempt: int
    extent: tuple[int, int]
    steps: tuple[float, float]
    zoomed: bool
    step: int | None
    role: str | None
    finding: StoredFinding | None

    def frame(self, kind: str, buckets: int) -> Frame:
        """The frame of the page's charts, whose curves are thinned to so many buckets."""
        bucket = max(1.0, (self.steps[1] - self.steps[0]) / buckets)
        return Frame(self.steps, self.zoomed, self.step, self.role, kind, bucket)


def focus(view: View, newest: int, spans: Iterable[Span], findings: Sequence[StoredFinding]) -> Focus:
    """What `view` means for a run whose newest attempt is `newest`."""
    finding = next((one for one in findings if one.id == view.finding), None)
    attempt = view.attempt or (finding.finding.attempt if finding else newest)
    steps = [step for one in spans if one.series.attempt == attempt for step in (one.first_step, one.last_step)]
    extent = (min(steps, default=0), max(steps, default=1))
    seen = _seen(view, finding, extent)
    return Focus(
        attempt,
        extent,
        _wide(seen or extent),
        seen is not None,
        view.step if view.step is not None else (finding.finding.start_step if finding else None),
        view.role if view.role is not None else (finding.finding.role or None if finding else None),
        finding,
    )


def _seen(view: View, chosen: StoredFinding | None, extent: tuple[int, int]) -> tuple[int, int] | None:
    """The range of steps that the reader asked for, by its ends or by a finding."""
    if view.first is not None or view.last is not None:
        first = extent[0] if view.first is None else view.first
        last = extent[1] if view.last is None else view.last
        return (first, last) if first <= last else (last, first)
    if chosen is None:
        return None
    first, last = chosen.finding.start_step, chosen.finding.end_step
    room = max(AROUND, 2 * (last - first))
    return max(extent[0], first - room), min(max(extent[1], last), last + room)


def _wide(steps: tuple[int, int]) -> tuple[float, float]:
    """The range of the axis, a little wider than its steps so that the ends are seen."""
    room = max(0.5, 0.01 * (steps[1] - steps[0]))
    return steps[0] - room, steps[1] + room
