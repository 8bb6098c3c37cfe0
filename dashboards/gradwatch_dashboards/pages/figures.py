"""The figures of a run's page: drawn for all viewers at once, sent to each only where they have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from gradwatch.schema import Curve, Selection, Span
from gradwatch_dashboards.charts import Chart, chart_of, place
from gradwatch_dashboards.figures.marks import Mark, mark
from gradwatch_dashboards.figures.metric import (
    Figure,
    Frame,
    MetricInfo,
    axis_note,
    described,
    lost_note,
    metric_figure,
    metric_info,
)
from gradwatch_dashboards.figures.side_by_side import side_by_side_figure, side_by_side_info
from gradwatch_dashboards.live import browser_callback
from gradwatch_dashboards.palette import THEMES, Ink, Theme
from gradwatch_dashboards.reader import Reader
from gradwatch_dashboards.run_parts.grid import chart_id, drawn
from gradwatch_dashboards.scene import Scene, read_scene
from gradwatch_dashboards.view import ROLES, parse, search

BUCKETS = 300
POINTS = 60_000
"""Points that one view may read, roughly: many lines get fewer buckets each."""

_PLOTS = {"type": "chart", "chart": ALL}
_NOTES = {"type": "notes", "chart": ALL}


class Drawn(NamedTuple):
    """A figure, the words beside its title, and a name that changes when it does."""

    figure: Figure
    notes: list[Any]
    name: str


def register_figures(app: Dash, reader: Reader) -> None:
    """Draw the charts that are on the page; zoom all where one is zoomed."""
    browser_callback(app, "zoomed", Input(_PLOTS, "relayoutData"), Input(_PLOTS, "clickData"))

    async def draw(_have: Any, theme: str, query: str, run: str, had: dict[str, str] | None) -> tuple[Any, Any, Any]:
        wanted = [one["id"]["chart"] for one in ctx.outputs_list[0]]
        scene = await read_scene(reader, run, parse(query))
        figures = await drawn_figures(reader, scene, theme)
        # The page may still hold charts that the view has left, for the moment that it takes to remove them.
        now = {name: figures[name].name for name in wanted if name in figures}
        fresh = [name in now and now[name] != (had or {}).get(name) for name in wanted]
        plots = [figures[name].figure if new else no_update for name, new in zip(wanted, fresh, strict=True)]
        words = [figures[name].notes if new else no_update for name, new in zip(wanted, fresh, strict=True)]
        return plots, words, now if any(fresh) else no_update

    app.callback(
        Output(_PLOTS, "figure"),
        Output(_NOTES, "children"),
        Output("run-drawn", "data"),
        Input("run-have", "data"),
        Input("theme", "data"),
        State("url", "search"),
        State("run-id", "data"),
        State("run-drawn", "data"),
        prevent_initial_call=True,
    )(draw)


async def drawn_figures(reader: Reader, scene: Scene, theme: str) -> dict[str, Drawn]:
    """The figures of a scene's charts by the names that they have on the page."""
    charts = drawn(scene.sections)
    if not charts:
        return {}
    spans = await reader.spans(scene.state)
    wanted = selection(scene, charts, spans)
    curves = await reader.curves(scene.state, wanted)
    question = ("figures", scene.state.info.id, search(scene.view), theme)
    return await reader.shared.get(question, scene.stamp, lambda: _draw(scene, charts, curves, theme, wanted.buckets))


def selection(scene: Scene, charts: Sequence[Chart], spans: Sequence[Span]) -> Selection:
    """The curves of some charts, thinned to what a screen can show; a zoomed view reads a little beyond its edges."""
    metrics, scopes = sorted({one.metric for one in charts}), sorted({one.scope for one in charts})
    own = [one.series for one in spans if one.series.attempt == scene.focus.attempt]
    count = sum(one.metric in metrics and one.scope in scopes for one in own)
    first, last = scene.focus.steps
    room = (last - first) / 10 + 1
    return Selection(
        metrics=tuple(metrics),
        scopes=tuple(scopes),
        attempt=scene.focus.attempt,
        first_step=int(first - room) if scene.focus.zoomed else None,
        last_step=int(last + room) if scene.focus.zoomed else None,
        buckets=max(20, min(BUCKETS, POINTS // max(1, count))),
    )


def _draw(scene: Scene, charts: Sequence[Chart], curves: Sequence[Curve], theme: str, buckets: int) -> dict[str, Drawn]:
    own: defaultdict[Chart, list[Curve]] = defaultdict(list)
    for one in curves:
        own[chart_of(one.series)].append(one)
    marks = chart_marks(scene, charts)
    make = _side_by_side if scene.view.view == ROLES else _by_metric
    frame = scene.focus.frame(scene.view.axis, buckets)
    return {chart_id(chart): make(scene.inks, frame, chart, own[chart], marks[chart], THEMES[theme]) for chart in charts}


def chart_marks(scene: Scene, charts: Sequence[Chart]) -> dict[Chart, list[tuple[str, Mark]]]:
    """The findings of each chart with their roles, the gravest first; the chosen one is seen faintly on every other chart."""
    counted = [one for one in scene.findings if one.finding.attempt == scene.focus.attempt and not one.false_alarm]
    counted.sort(key=lambda one: (-_GRAVITY[one.finding.severity], one.finding.start_step))
    chosen = scene.focus.finding
    marks: dict[Chart, list[tuple[str, Mark]]] = {chart: [] for chart in charts}
    for one in counted:
        at = place(one.finding, marks)
        if at in marks:
            marks[at].append((one.finding.role, mark(one.finding)))
        if chosen is not None and one.id == chosen.id:
            for chart, own in marks.items():
                if chart != at:
                    own.append((one.finding.role, mark(one.finding, strong=False)))
    return marks


_GRAVITY = {"info": 0, "warning": 1, "critical": 2}


def _by_metric(
    inks: Mapping[str, Ink], frame: Frame, chart: Chart, curves: Sequence[Curve], marks: Sequence[tuple[str, Mark]], theme: Theme
) -> Drawn:
    info = metric_info(chart, curves, inks, (one for _, one in marks), frame)
    figure = metric_figure(info, theme)
    figure["layout"]["meta"] = {"description": described(info)}
    return Drawn(figure, _notes(info), _name(info, theme))


def _side_by_side(
    inks: Mapping[str, Ink], frame: Frame, chart: Chart, curves: Sequence[Curve], marks: Sequence[tuple[str, Mark]], theme: Theme
) -> Drawn:
    by_role: defaultdict[str, list[Mark]] = defaultdict(list)
    for role, one in marks:
        by_role[role].append(one)
    whole = metric_info(chart, curves, inks, (one for _, one in marks), frame)
    info = side_by_side_info(whole, inks, by_role)
    figure = side_by_side_figure(info, theme)
    figure["layout"]["meta"] = {"description": described(whole)}
    return Drawn(figure, _notes(whole), _name(info, theme))


def _notes(info: MetricInfo) -> list[Any]:
    return [html.Span(axis_note(info), className="faint"), " ", html.Span(lost_note(info), className="critical")]


def _name(info: object, theme: Theme) -> str:
    return f"{hash(info):x} {theme.text}"
