"""The head of a run's page: how it stands, who broke first, and each role's worst finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dash import html

from gradwatch.schema import Attempt, RunState, StoredFinding
from gradwatch_dashboards.figures.marks import gravest_first
from gradwatch_dashboards.focus import Focus
from gradwatch_dashboards.palette import Ink
from gradwatch_dashboards.parts import ago, aria, link, role_name, severity, status, step_range, swatch
from gradwatch_dashboards.view import View, run_path


class RoleStand(NamedTuple):
    """How one role stands: its gravest finding, None where there is none."""

    role: str
    ink: Ink
    worst: StoredFinding | None
    more: int


class HeadInfo(NamedTuple):
    """What the head shows, of the attempt in focus but for the run's health.

    `first` is the earliest finding above info, `together` the roles that have one of its kind since that same step.
    """

    state: RunState
    status: str
    last_step: int | None
    attempts: tuple[Attempt, ...]
    focus: Focus
    roles: tuple[RoleStand, ...]
    first: StoredFinding | None
    together: tuple[str, ...]
    view: View


def head_info(
    state: RunState,
    attempts: Sequence[Attempt],
    focus: Focus,
    findings: Sequence[StoredFinding],
    inks: Mapping[str, Ink],
    view: View,
) -> HeadInfo:
    """The head for the findings of the attempt in focus."""
    counted = [one for one in findings if one.finding.attempt == focus.attempt and not one.false_alarm]
    bad = [one for one in counted if one.finding.severity != "info"]
    first = min(bad, key=lambda one: (one.finding.start_step, not one.finding.role), default=None)
    roles = tuple(_stand(role, ink, counted) for role, ink in inks.items())
    shown = tuple(one for one in roles if one.role or one.worst is not None or len(roles) == 1)
    newest = focus.attempt == state.attempt
    own = next((one.status for one in attempts if one.number == focus.attempt), state.status)
    last = state.last_step if newest else focus.extent[1]
    return HeadInfo(state, own, last, tuple(attempts), focus, shown, first, _together(first, bad, inks), view)


def head(info: HeadInfo) -> list[Any]:
    """The head as it stands on the page."""
    state, run = info.state, info.state.info
    facts = [
        severity(state.health),
        status(info.status),
        html.Span(["step ", html.B("–" if info.last_step is None else f"{info.last_step:,}", id="newest-step")]),
        html.Span(["updated ", ago(state.last_update)]),
        html.Span(["project ", html.B(run.project)]),
        _attempts(info),
    ]
    title = html.Div([html.H1(run.name), html.Div(facts, className="facts")], className="title")
    return [title, _verdict(info), _roles(info), *_warnings(run.warnings)]


def page_title(state: RunState) -> str:
    """What the browser's tab says."""
    return f"{state.info.name} · {state.health} · gradwatch"


def _stand(role: str, ink: Ink, findings: Sequence[StoredFinding]) -> RoleStand:
    own = [one for one in findings if one.finding.role == role]
    grave = gravest_first(one.finding for one in own)
    worst = next((one for one in own if one.finding is grave[0]), None)
    return RoleStand(role, ink, worst, max(0, len(own) - 1))


def _together(first: StoredFinding | None, bad: Sequence[StoredFinding], inks: Mapping[str, Ink]) -> tuple[str, ...]:
    """Of roles that share weights a NaN spreads at once: the step tells nothing of who began it."""
    if first is None:
        return ()
    begun = {one.finding.role for one in bad if _begin(one) == _begin(first)}
    return tuple(role for role in inks if role and role in begun)


def _begin(stored: StoredFinding) -> tuple[str, int]:
    return stored.finding.kind, stored.finding.start_step


def _verdict(info: HeadInfo) -> html.P:
    if info.first is None:
        said = "No problem found so far." if info.status == "running" else "No problem found."
        return html.P(said, className="verdict healthy")
    found = info.first.finding
    who = [html.B(found.role), " broke first: "] if found.role else ["First problem: "]
    if len(info.together) > 1:
        who = [html.B(", ".join(info.together)), " broke at once: "]
    where = f"{found.kind.replace('_', ' ')} in {found.source_key or found.metric}, "
    at = link(f"since step {found.start_step:,}", _to(info, info.first), "strong")
    return html.P([*who, where, at], className=f"verdict {found.severity}", id="verdict")


def _roles(info: HeadInfo) -> html.Ul:
    return html.Ul([html.Li(_role(info, one)) for one in info.roles], className="roles", **aria(label="Roles"))


def _role(info: HeadInfo, one: RoleStand) -> html.Div:
    chosen = info.view.role == one.role and info.view.role is not None
    to = info.view._replace(role=None if chosen else one.role)
    name = link(
        [swatch(one.ink), " ", role_name(one.role)],
        run_path(info.state.info.id, to),
        "role chosen" if chosen else "role",
        title="Show all roles alike" if chosen else f"Make {role_name(one.role)} stand out",
        **aria(current="true" if chosen else "false"),
    )
    if one.worst is None:
        return html.Div([name, " ", severity("healthy")], className="stand")
    found = one.worst.finding
    ended = " (over)" if found.closed else ""
    what = f"{found.kind.replace('_', ' ')}, {step_range(found.start_step, found.end_step)}{ended}"
    more = f" +{one.more}" if one.more else ""
    return html.Div([name, " ", severity(found.severity), " ", link(what, _to(info, one.worst)), more], className="stand")


def _to(info: HeadInfo, stored: StoredFinding) -> str:
    return run_path(info.state.info.id, to_finding(info.view, stored))


def to_finding(view: View, stored: StoredFinding) -> View:
    """The view of a finding: its steps, its role, its samples."""
    return view._replace(attempt=stored.finding.attempt, finding=stored.id, first=None, last=None, step=None, role=None)


def _attempts(info: HeadInfo) -> html.Span | None:
    if len(info.attempts) < 2:
        return None
    run = info.state.info.id
    links = [
        link(
            str(one.number),
            run_path(run, View(attempt=one.number, view=info.view.view, axis=info.view.axis)),
            "chosen" if one.number == info.focus.attempt else "",
            title=one.status,
            **aria(current="true" if one.number == info.focus.attempt else "false", label=f"attempt {one.number}, {one.status}"),
        )
        for one in info.attempts
    ]
    return html.Span([html.Span("attempt"), *links], className="switch")


def _warnings(warnings: Sequence[str]) -> list[Any]:
    if not warnings:
        return []
    few = [html.Li(one) for one in warnings[:20]]
    return [html.Details([html.Summary(f"{len(warnings)} remarks on the log"), html.Ul(few)], className="remarks")]
