"""The sections of charts: which there are, and the places into which the figures come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from dash import dcc, html

from gradwatch_dashboards.charts import Chart, Section, meaning, title
from gradwatch_dashboards.palette import Ink
from gradwatch_dashboards.parts import aria, link, marked, role_name, swatch
from gradwatch_dashboards.view import ROLES, View, flip, run_path

_HIDDEN = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
CONFIG: Any = {
    "displaylogo": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "doubleClick": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d", "zoom2d", "resetScale2d"],
    "responsive": True,
}


BLANK: Any = {"data": [], "layout": {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", **_HIDDEN}}
"""What stands in a chart's place until its figure comes."""


class GridInfo(NamedTuple):
    """The sections of a view, and the roles that have a column where they stand side by side."""

    run: str
    view: View
    sections: tuple[Section, ...]
    columns: tuple[tuple[str, Ink], ...]


def grid_info(run: str, view: View, sections: Sequence[Section], columns: Iterable[tuple[str, Ink]]) -> GridInfo:
    """The grid of a view; only what its look depends on is kept of it, so that a zoom does not build it anew."""
    kept = View(attempt=view.attempt, metric=view.metric, view=view.view, flipped=view.flipped)
    return GridInfo(run, kept, tuple(sections), tuple(one for one in columns if one[0]) if view.view == ROLES else ())


def drawn(sections: Iterable[Section]) -> list[Chart]:
    """The charts that are on the page."""
    return [chart for one in sections if one.opened for chart in one.charts]


def chart_id(chart: Chart) -> str:
    """The chart's name in the page: free of characters that mean something to Dash or CSS."""
    return blake2b(chart.id.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def grid(info: GridInfo) -> list[Any]:
    """The grid as it stands on the page."""
    if not info.sections:
        said = f"No metric is called {info.view.metric!r}." if info.view.metric else "No metrics yet: waiting for the first step."
        return [html.P(said, className="faint")]
    return [_section(info, one) for one in info.sections]


def _section(info: GridInfo, one: Section) -> html.Section:
    count = len(one.charts) + one.more
    name = f"{'▾' if one.opened else '▸'} {one.title} ({count:,})"
    # Marked for the browser's script: what a link of the grid keeps of the address is decided there, see `flip` in assets.
    head = html.H2(
        link(
            name,
            run_path(info.run, flip(info.view, one.key)),
            "fold",
            **marked(flip=one.key),
            **aria(expanded=str(one.opened).lower()),
        )
    )
    if not one.opened:
        return html.Section(head, key=one.key, className="charts single", **aria(label=one.title))
    wide = info.view.view == ROLES
    alone = len(one.charts) == 1 and not wide
    heads = [_column_heads(info)] if wide and one.by_role else []
    charts = html.Div([_chart(chart, wide) for chart in one.charts], className="wide" if wide else "grid")
    more = [html.P(f"{one.more:,} more: narrow them down with the filter above.", className="faint")] if one.more else []
    return html.Section(
        [head, *heads, charts, *more], key=one.key, className="charts single" if alone else "charts", **aria(label=one.title)
    )


def _column_heads(info: GridInfo) -> html.Div:
    return html.Div([html.Div([swatch(ink), " ", role_name(role)]) for role, ink in info.columns], className="columns")


def _chart(chart: Chart, wide: bool) -> html.Figure:
    name = chart_id(chart)
    caption = html.Figcaption(
        [html.Span(title(chart), className="name", title=meaning(chart) or None), html.Span(id={"type": "notes", "chart": name})]
    )
    graph = dcc.Graph(id={"type": "chart", "chart": name}, config=CONFIG, figure=BLANK, style={"height": 150 if wide else 200})
    return html.Figure([caption, graph], key=name, className="chart", **marked(chart=chart.metric))
