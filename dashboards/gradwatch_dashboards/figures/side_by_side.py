"""One metric with a column per role: one step axis and one value axis for all, so that the odd one out is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gradwatch_dashboards.charts import Chart
from gradwatch_dashboards.figures.axis import Axis
from gradwatch_dashboards.figures.lines import Line, line_traces
from gradwatch_dashboards.figures.marks import Mark, mark_shapes, step_shape
from gradwatch_dashboards.figures.metric import Figure, Frame, MetricInfo, lost_axis, page_layout, step_axis, y_axis
from gradwatch_dashboards.palette import Ink, Theme

GAP = 0.012
"""Of the figure's width, between two columns."""


class Column(NamedTuple):
    """What one role's column shows."""

    role: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


class SideBySide(NamedTuple):
    """A metric, role by role."""

    chart: Chart
    columns: tuple[Column, ...]
    axis: Axis
    frame: Frame


def side_by_side_info(whole: MetricInfo, inks: Mapping[str, Ink], marks: Mapping[str, Sequence[Mark]]) -> SideBySide:
    """A column for each role of `inks`, lines and findings (`marks`, by role) of the whole run in all of them.

    Where nothing is of a single role there is one column.
    """
    roles = [role for role in inks if role] if any(one.role for one in whole.lines) else []
    columns = tuple(
        Column(
            role,
            tuple(one for one in whole.lines if one.role in (role, "")),
            tuple(one for of in dict.fromkeys((role, "")) for one in marks.get(of, ())),
        )
        for role in roles or [""]
    )
    return SideBySide(whole.chart, columns, whole.axis, whole.frame)


def side_by_side_figure(info: SideBySide, theme: Theme) -> Figure:
    """How Plotly draws it: axes x, x2 … and y, y2 … for the columns, y101 … for the marks of what was not finite."""
    layout: Figure = {**page_layout(theme, top=8), "uirevision": "page", "shapes": [], "annotations": []}
    data: list[Any] = []
    for at, one in enumerate(info.columns):
        axes = _axis_name("x", at), _axis_name("y", at), f"y{101 + at}"
        data += line_traces(one.lines, axes=axes) or [_nothing_drawn(axes)]
        layout |= _axes(info, at, theme)
        layout["shapes"] += mark_shapes(one.marks, theme, axes[0], f"{axes[1]} domain")
        if info.frame.step is not None:
            layout["shapes"].append(step_shape(info.frame.step, theme, axes[0], f"{axes[1]} domain"))
        if not any(line.role == one.role for line in one.lines):
            layout["annotations"].append(_nothing(axes, theme))
    return {"data": data, "layout": layout}


def _axes(info: SideBySide, at: int, theme: Theme) -> Figure:
    count = len(info.columns)
    gap = min(GAP, 0.3 / count)
    width = (1 - gap * (count - 1)) / count
    left = at * (width + gap)
    x, y = _axis_name("x", at), _axis_name("y", at)
    follow = {"matches": "x"} if at else {}
    number = str(at + 1) if at else ""
    return {
        f"xaxis{number}": {
            **step_axis(info.frame, theme),
            "domain": [left, min(1.0, left + width)],
            "anchor": y,
            "nticks": 4,
            **follow,
        },
        f"yaxis{number}": {**y_axis(info.axis, theme), "anchor": x} | ({"showticklabels": False} if at else {}),
        f"yaxis{101 + at}": lost_axis(y, x),
    }


def _axis_name(letter: str, at: int) -> str:
    return letter if at == 0 else f"{letter}{at + 1}"


def _nothing_drawn(axes: tuple[str, str, str]) -> dict[str, Any]:
    # Plotly leaves out axes that no trace names.
    return {"type": "scatter", "x": [None], "y": [None], "xaxis": axes[0], "yaxis": axes[1], "hoverinfo": "skip"}


def _nothing(axes: tuple[str, str, str], theme: Theme) -> dict[str, Any]:
    return {
        "text": "not logged for this role",
        "xref": f"{axes[0]} domain",
        "yref": f"{axes[1]} domain",
        "x": 0.5,
        "y": 0.5,
        "showarrow": False,
        "font": {"size": 11, "color": theme.text},
    }
