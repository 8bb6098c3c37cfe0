"""The chart of one metric: its roles on one axis, its findings as ranges of steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from gradwatch.schema import Curve
from gradwatch_dashboards.charts import Chart, title, unit
from gradwatch_dashboards.figures.axis import Axis, value_axis
from gradwatch_dashboards.figures.lines import Line, line, line_traces, told_apart
from gradwatch_dashboards.figures.marks import ROW_PIXELS, Mark, mark_labels, mark_shapes, step_shape
from gradwatch_dashboards.palette import Ink, Theme

Figure = dict[str, Any]


class Frame(NamedTuple):
    """What all charts of a page share: the step axis, the chosen step, the roles and their inks, the kind of value axis.

    `steps` is the range of steps that is seen; `zoomed` says that the reader chose it. `bucket` is the width in steps of the ranges
    to which the curves are thinned, 1 where they hold every point.
    """

    steps: tuple[float, float]
    zoomed: bool = False
    step: int | None = None
    role: str | None = None
    kind: str = "auto"
    bucket: float = 1.0


class MetricInfo(NamedTuple):
    """What a metric's chart shows."""

    chart: Chart
    lines: tuple[Line, ...]
    axis: Axis
    marks: tuple[Mark, ...]
    frame: Frame

    @property
    def lost(self) -> int:
        """The non-finite values of all lines."""
        return sum(len(one.lost) for one in self.lines)


def metric_info(chart: Chart, curves: Sequence[Curve], inks: Mapping[str, Ink], marks: Iterable[Mark], frame: Frame) -> MetricInfo:
    """The chart of some curves; roles in the order of `inks`."""
    order = {role: at for at, role in enumerate(inks)}
    curves = sorted(curves, key=lambda one: (order.get(one.series.role, len(order)), one.series.agent, one.series.rank))
    lines = told_apart((line(one, inks) for one in curves), curves)
    axis = value_axis((_within(one, frame.steps) for one in lines), frame.kind)
    return MetricInfo(chart, tuple(lines), axis, tuple(marks), frame)


def lost_note(info: MetricInfo) -> str:
    """How many values are not finite; a plus says that thinning may have left out some of a stretch."""
    gaps = (late - early for one in info.lines for (early, _), (late, _) in pairwise(one.lost))
    more = "+" if any(1 < gap < info.frame.bucket for gap in gaps) else ""
    return f"{info.lost:,}{more} non-finite" if info.lost else ""


def axis_note(info: MetricInfo) -> str:
    """What the value axis does not hold."""
    axis, more = info.axis, "+" if info.frame.bucket > 1 else ""
    beyond = f"{axis.beyond:,}{more} beyond the axis, the farthest {axis.farthest:,.4g}" if axis.farthest is not None else ""
    undrawable = f"{axis.undrawable:,}{more} not above 0: no place on a log axis" if axis.undrawable else ""
    return beyond or undrawable


def described(info: MetricInfo) -> str:
    """The chart in one sentence, for those who do not see it."""
    names = ", ".join(one.name for one in info.lines)
    found = "; findings: " + ", ".join(own) if (own := [one.label for one in info.marks if one.strong]) else ""
    steps = [step for one in info.lines for step in one.steps if info.frame.steps[0] <= step <= info.frame.steps[1]]
    seen = f"steps {min(steps):,} to {max(steps):,}" if steps else "no steps"
    noted = "".join(f"; {note}" for note in (lost_note(info), axis_note(info)) if note)
    return f"{title(info.chart)} of {names}, {seen}{noted}{found}"


def metric_figure(info: MetricInfo, theme: Theme) -> Figure:
    """How Plotly draws it."""
    shapes = mark_shapes(info.marks, theme)
    if info.frame.step is not None:
        shapes.append(step_shape(info.frame.step, theme))
    chosen = info.frame.role
    roles = {one.role for one in info.lines}
    faint = roles - {chosen} if chosen in roles else set()
    labels = mark_labels(info.marks, info.frame.steps, theme)
    rows = 1 + max((one["yshift"] for one in labels), default=0) // ROW_PIXELS
    layout = {
        **page_layout(theme, top=3 + rows * ROW_PIXELS),
        "uirevision": "page",
        "xaxis": step_axis(info.frame, theme),
        "yaxis": {**y_axis(info.axis, theme), "title": {"text": unit(info.chart), "font": {"size": 11}, "standoff": 4}},
        "yaxis2": lost_axis("y"),
        "shapes": shapes,
        "annotations": labels,
    }
    return {"data": line_traces(info.lines, faint), "layout": layout}


def page_layout(theme: Theme, top: int) -> Figure:
    """What every figure of the page has in common."""
    return {
        "margin": {"l": 54, "r": 10, "t": top, "b": 26},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 11, "color": theme.text},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": theme.hover, "bordercolor": theme.grid, "font": {"color": theme.text}},
        "dragmode": "zoom",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": theme.text, "activecolor": theme.text},
        "showlegend": False,
    }


def step_axis(frame: Frame, theme: Theme) -> Figure:
    """The step axis; it keeps what the reader does to it until the address says otherwise."""
    return {
        "range": list(frame.steps),
        "autorange": False,
        "uirevision": f"{frame.steps}" if frame.zoomed else "all",
        "gridcolor": theme.grid,
        "zeroline": False,
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 1,
        "spikedash": "solid",
        "spikecolor": theme.text,
        "hoverformat": ",d",
        "tickformat": ",d",
        "unifiedhovertitle": {"text": "step %{x:,d}"},
    }


def y_axis(axis: Axis, theme: Theme) -> Figure:
    """A value axis."""
    bounds = [] if axis.low is None or axis.high is None else [axis.low, axis.high]
    shown = [math.log10(one) for one in bounds] if axis.log else bounds
    return {
        "type": "log" if axis.log else "linear",
        **({"dtick": 1} if axis.log and len(shown) == 2 and shown[1] - shown[0] > 1.5 else {}),
        "range": shown or [0, 1],
        "autorange": False,
        "showticklabels": bool(shown),
        "fixedrange": True,
        "gridcolor": theme.grid,
        "zeroline": False,
        "nticks": 5,
        "exponentformat": "power",
    }


def lost_axis(over: str, anchor: str = "x") -> Figure:
    """The hidden axis of the non-finite values' marks: 0 to 1 from the lower to the upper edge."""
    return {"overlaying": over, "anchor": anchor, "range": [0, 1], "autorange": False, "fixedrange": True, "visible": False}


def _within(one: Line, steps: tuple[float, float]) -> list[float]:
    return [value for step, value in zip(one.steps, one.values, strict=True) if steps[0] <= step <= steps[1]]
