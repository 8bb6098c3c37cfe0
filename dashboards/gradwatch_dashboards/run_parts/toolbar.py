"""What the reader can do with the charts: one chart a metric or a column a role, the kind of axis, back to all steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dash import html

from gradwatch_dashboards.focus import Focus
from gradwatch_dashboards.palette import Ink
from gradwatch_dashboards.parts import aria, link, role_name, swatch
from gradwatch_dashboards.view import AXES, VIEWS, View, run_path

LEGEND = 12
_VIEWS = {"metrics": ("By metric", "One chart per metric, a line per role"), "roles": ("Roles side by side", "A column per role")}
_AXES = {
    "auto": ("auto", "Cut where a few values would flatten all others"),
    "full": ("full", "Every value is within the axis"),
    "log": ("log", "A logarithmic axis"),
}


class ToolbarInfo(NamedTuple):
    """What the toolbar says and leads to."""

    run: str
    view: View
    steps: tuple[float, float]
    zoomed: bool
    inks: tuple[tuple[str, Ink], ...] = ()


def toolbar_info(run: str, view: View, focus: Focus, inks: Mapping[str, Ink]) -> ToolbarInfo:
    """The toolbar of a view; a legend only where there are roles and they fit."""
    shown = tuple(inks.items()) if 1 < len(inks) <= LEGEND + 1 else ()
    # While all steps are seen, their range grows with every step, and the toolbar does not say it.
    return ToolbarInfo(run, view, focus.steps if focus.zoomed else (0, 0), focus.zoomed, shown)


def toolbar(info: ToolbarInfo) -> list[Any]:
    """The toolbar as it stands on the page."""
    views = [_choice(info, info.view._replace(view=one), *_VIEWS[one], one == info.view.view) for one in VIEWS]
    axes = [_choice(info, info.view._replace(axis=one), *_AXES[one], one == info.view.axis) for one in AXES]
    return [
        html.Div(views, className="switch", role="group", **aria(label="View")),
        html.Div([html.Span("axis"), *axes], className="switch", role="group", **aria(label="Value axis")),
        _zoom(info),
        html.Div([html.Span([swatch(ink), " ", role_name(role)]) for role, ink in info.inks], className="legend"),
    ]


def _choice(info: ToolbarInfo, to: View, name: str, title: str, chosen: bool) -> html.A:
    current = aria(current="true" if chosen else "false")
    return link(name, run_path(info.run, to), "chosen" if chosen else "", title=title, **current)


def _zoom(info: ToolbarInfo) -> html.Span:
    if not info.zoomed:
        return html.Span("all steps · drag to zoom, click for samples", className="faint", id="zoom")
    whole = info.view._replace(first=None, last=None, finding="")
    said = f"steps {info.steps[0]:,.0f}–{info.steps[1]:,.0f} · "
    return html.Span([said, link("show all steps", run_path(info.run, whole), "strong")], id="zoom")
