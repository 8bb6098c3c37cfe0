"""The findings of a run, the gravest first; each leads to its steps and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dash import html

from gradwatch.schema import SEVERITIES, Event, StoredFinding
from gradwatch_dashboards.palette import Ink
from gradwatch_dashboards.parts import link, marked, role_name, severity, step_range, swatch
from gradwatch_dashboards.run_parts.head import to_finding
from gradwatch_dashboards.view import View, run_path

MAX_FINDINGS = 60


class FindingsInfo(NamedTuple):
    """The findings of the attempt in focus, in their order on the page, and the chosen one's id.

    `places` are the modules in which values were first not finite, in words, by step.
    """

    run: str
    view: View
    found: tuple[StoredFinding, ...]
    chosen: str
    inks: tuple[tuple[str, Ink], ...]
    places: tuple[tuple[int | None, str], ...]


def findings_info(
    run: str, view: View, attempt: int, findings: Sequence[StoredFinding], inks: Mapping[str, Ink], events: Sequence[Event] = ()
) -> FindingsInfo:
    """The list: what is open before what is over, the gravest first, then the earliest."""
    own = sorted((one for one in findings if one.finding.attempt == attempt), key=_order)
    places = tuple((one.step, one.message) for one in events if (one.kind, one.attempt) == ("nonfinite", attempt))
    return FindingsInfo(run, view, tuple(own), view.finding, tuple(inks.items()), places)


def findings_list(info: FindingsInfo) -> list[Any]:
    """The list as it stands on the page."""
    title = html.H2(f"Findings ({len(info.found):,})", id="findings-title")
    if not info.found:
        return [title, html.P("Nothing was found in this attempt so far.", className="faint")]
    inks = dict(info.inks)
    cards = [html.Li(_card(info, one, inks, at == 0), key=one.id) for at, one in enumerate(info.found[:MAX_FINDINGS])]
    more = len(info.found) - MAX_FINDINGS
    rest = [html.P(f"{more:,} milder or later ones are not shown: `gradwatch findings` lists all.")] if more > 0 else []
    return [title, html.Ol(cards, className="findings"), *rest]


def _order(one: StoredFinding) -> tuple[bool, int, int, str]:
    over = one.false_alarm or one.status == "resolved"
    return over, -SEVERITIES.index(one.finding.severity), one.finding.start_step, one.finding.role


def _card(info: FindingsInfo, stored: StoredFinding, inks: Mapping[str, Ink], first: bool) -> html.Article:
    found = stored.finding
    chosen = stored.id == info.chosen
    to = info.view._replace(finding="", first=None, last=None) if chosen else to_finding(info.view, stored)
    head = [severity(found.severity), html.Span(_state(stored), className="faint")]
    what: list[Any] = [html.B(found.kind.replace("_", " ")), f" · {step_range(found.start_step, found.end_step)}"]
    where: list[Any] = [swatch(inks.get(found.role, inks[""])), f" {role_name(found.role)} · {found.source_key or found.metric}"]
    body = [
        html.Div(head, className="row"),
        link(
            html.Div(what),
            run_path(info.run, to),
            "what",
            title="Show all steps" if chosen else "Show its steps and samples",
            **marked(finding=stored.id),
        ),
        html.Div(where, className="where"),
        html.P(found.message),
        *(html.P([html.B("Where: "), said]) for said in _places(info, stored)),
        html.Details([html.Summary("What to do"), html.P(found.suggestion)], open=chosen or first) if found.suggestion else None,
        html.A("Samples of this step and role ↓", href="#samples") if chosen else None,
    ]
    return html.Article(body, className=f"finding {found.severity}{' chosen' if chosen else ''}")


def _places(info: FindingsInfo, stored: StoredFinding) -> list[str]:
    """Where the values of a finding came from; said once, by the first of those that begin together."""
    begins = [
        one.id for one in info.found if (one.finding.kind, one.finding.start_step) == ("nonfinite", stored.finding.start_step)
    ]
    return [said for step, said in info.places if step == stored.finding.start_step and begins[:1] == [stored.id]]


def _state(stored: StoredFinding) -> str:
    if stored.false_alarm:
        return "false alarm"
    return "over" if stored.status == "resolved" and stored.finding.closed else stored.status
