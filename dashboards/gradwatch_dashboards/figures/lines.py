"""The lines of one chart: a role each, gaps and marks where a value is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gradwatch.schema import NO_RANK, Curve, Series
from gradwatch_dashboards.figures.typed import typed
from gradwatch_dashboards.palette import Ink

SYMBOLS = {"NaN": "x", "+Inf": "triangle-up", "-Inf": "triangle-down"}
TOP = 0.955
ROW = 0.06
"""Of the plot's height: marks of non-finite values stand below its upper edge, each role's in a row of its own."""


class Line(NamedTuple):
    """One series as it is drawn. `values` hold NaN where the line has a gap, `lost` what was there: (step, what it was)."""

    name: str
    role: str
    ink: Ink
    steps: tuple[int, ...]
    values: tuple[float, ...]
    lost: tuple[tuple[int, str], ...] = ()
    thin: bool = False


def line(curve: Curve, inks: Mapping[str, Ink]) -> Line:
    """The line of a curve."""
    series = curve.series
    lost = tuple((step, _what(value)) for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value))
    values = tuple(value if math.isfinite(value) else math.nan for value in curve.values)
    thin = bool(series.agent) or series.rank != NO_RANK
    return Line(_name(series), series.role, inks.get(series.role, inks[""]), tuple(curve.steps), values, lost, thin)


def told_apart(lines: Iterable[Line], curves: Iterable[Curve]) -> list[Line]:
    """The lines, those that share a name told apart by the key that their framework logged."""
    lines = list(lines)
    names = [one.name for one in lines]
    return [
        one._replace(name=f"{one.name} ({curve.series.source_key})") if names.count(one.name) > 1 else one
        for one, curve in zip(lines, curves, strict=True)
    ]


def line_traces(lines: Iterable[Line], faint: Iterable[str] = (), axes: tuple[str, str, str] = ("x", "y", "y2")) -> list[Any]:
    """Plotly's traces: the lines, then the marks of what was not finite on an axis of its own from 0 to 1."""
    lines, faint = list(lines), set(faint)
    rows = {role: at for at, role in enumerate(dict.fromkeys(one.role for one in lines if one.lost))}
    drawn = [_trace(one, one.role in faint, axes) for one in lines]
    return drawn + [_marks(one, rows[one.role], one.role in faint, axes) for one in lines if one.lost]


def _trace(one: Line, faint: bool, axes: tuple[str, str, str]) -> dict[str, Any]:
    lone = len(one.steps) == 1 or _isolated(one.values)
    return {
        "type": "scatter",
        "uid": f"line {one.name}",
        "name": _text(one.name),
        "mode": "lines+markers" if lone else "lines",
        "marker": {"size": 4},
        "x": typed(one.steps),
        "y": typed(one.values),
        "xaxis": axes[0],
        "yaxis": axes[1],
        "line": {"color": one.ink.colour, "dash": one.ink.dash, "width": 1 if one.thin else 1.8},
        "opacity": 0.2 if faint else 1,
        "connectgaps": False,
        "hovertemplate": "%{y:.5g}<extra>" + _text(one.name) + "</extra>",
    }


def _marks(one: Line, row: int, faint: bool, axes: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "uid": f"lost {one.name}",
        "name": _text(one.name),
        "mode": "markers",
        "x": typed(step for step, _ in one.lost),
        "y": typed(TOP - row % 4 * ROW for _ in one.lost),
        "xaxis": axes[0],
        "yaxis": axes[2],
        "text": [what for _, what in one.lost],
        "marker": {
            "symbol": [SYMBOLS[what] for _, what in one.lost],
            "size": 9,
            "color": one.ink.colour,
            "line": {"width": 1, "color": one.ink.colour},
        },
        "opacity": 0.25 if faint else 1,
        "cliponaxis": False,
        "hovertemplate": "%{text} at step %{x}<extra>" + _text(one.name) + "</extra>",
    }


def _isolated(values: tuple[float, ...]) -> bool:
    """Whether a value stands between two gaps, where a line alone would not show it."""
    solid = [math.isfinite(value) for value in (math.nan, *values, math.nan)]
    return any(here and not before and not after for before, here, after in zip(solid, solid[1:], solid[2:], strict=False))


def _what(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _name(series: Series) -> str:
    parts = [series.agent or series.role or "whole run", series.policy, "" if series.rank == NO_RANK else f"rank {series.rank}"]
    return " · ".join(part for part in parts if part)


def _text(name: str) -> str:
    """A name for Plotly, which reads some tags and templates in texts."""
    return name.replace("<", "&lt;").replace("%{", "% {")
