"""What all parts of a run's page are made from, read once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gradwatch.schema import RunState, StoredFinding
from gradwatch_dashboards.charts import Section, sections
from gradwatch_dashboards.figures.marks import gravest_first
from gradwatch_dashboards.focus import Focus, focus
from gradwatch_dashboards.palette import Ink, role_inks
from gradwatch_dashboards.reader import Reader, newest_update
from gradwatch_dashboards.view import View


class Scene(NamedTuple):
    """A run as it stands, seen through a view. `stamp` changes with whatever its charts show."""

    state: RunState
    view: View
    focus: Focus
    findings: tuple[StoredFinding, ...]
    inks: Mapping[str, Ink]
    sections: tuple[Section, ...]
    stamp: Any


async def read_scene(reader: Reader, run: str, view: View) -> Scene:
    """The scene of a run; StoreError or RefusedError where there is no such run."""
    state = await reader.state(run)
    found = await reader.findings(run)
    spans = await reader.spans(state)
    looked = focus(view, state.attempt, spans, found)
    own = [one for one in spans if one.series.attempt == looked.attempt]
    counted = gravest_first(one.finding for one in found if one.finding.attempt == looked.attempt and not one.false_alarm)
    inks = role_inks(state.info.roles, (one.series.role for one in spans))
    charts = sections(own, counted, view.metric, view.flipped)
    return Scene(state, view, looked, tuple(found), inks, tuple(charts), (state.sequence, newest_update(found)))
