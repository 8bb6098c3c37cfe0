"""What happened to a run beside its numbers: where a NaN came from, interrupts, restarts, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dash import html

from gradwatch.schema import Event
from gradwatch_dashboards.parts import aria

MAX_EVENTS = 50


class EventsInfo(NamedTuple):
    """The events of an attempt, the newest first, and how many there are."""

    events: tuple[Event, ...]
    total: int


def events_info(events: Sequence[Event], attempt: int) -> EventsInfo:
    """The newest events of an attempt."""
    own = [one for one in events if one.attempt == attempt]
    return EventsInfo(tuple(own[: -MAX_EVENTS - 1 : -1]), len(own))


def events_list(info: EventsInfo) -> list[Any]:
    """The list as it stands on the page."""
    title = html.H2(f"Events ({info.total:,})", id="events-title")
    if not info.total:
        return [title, html.P("None", className="faint")]
    left = info.total - len(info.events)
    more = [html.P(f"and {left:,} before these", className="faint")] if left else []
    return [title, html.Ul([_item(one) for one in info.events], **aria(labelledby="events-title")), *more]


def _item(one: Event) -> html.Li:
    at = f" · step {one.step:,}" if one.step is not None else ""
    return html.Li([html.B(f"{one.kind.replace('_', ' ')}{at}"), html.Div(one.message)])
