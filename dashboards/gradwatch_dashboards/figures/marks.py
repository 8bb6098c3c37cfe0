"""Findings and the chosen step, as they are drawn into a chart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gradwatch.schema import SEVERITIES, Finding
from gradwatch_dashboards.palette import SEVERITY_SHAPES, Theme

ROWS = 2
"""Rows of names above a chart; findings that find no room in them are drawn without a name."""

ROW_PIXELS = 15


class Mark(NamedTuple):
    """A finding in a chart. `strong` ones concern the chart itself, the others are the chosen finding seen from elsewhere."""

    first: int
    last: int
    severity: str
    label: str
    strong: bool = True


def mark(finding: Finding, strong: bool = True) -> Mark:
    """The mark of a finding."""
    who = f"{finding.role} " if finding.role else ""
    label = f"{SEVERITY_SHAPES[finding.severity]} {who}{finding.kind.replace('_', ' ')} @ {finding.start_step:,}"
    return Mark(finding.start_step, finding.end_step, finding.severity, label, strong)


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first, then the earliest."""
    return sorted(findings, key=lambda one: (-SEVERITIES.index(one.severity), one.start_step, one.role))


def mark_shapes(marks: Iterable[Mark], theme: Theme, xref: str = "x", yref: str = "paper") -> list[dict[str, Any]]:
    """A shaded range of steps for each mark, with a line where it starts; equal ranges are shaded once."""
    shapes: list[dict[str, Any]] = []
    for one in {(one.first, one.last, one.severity, one.strong): one for one in marks}.values():
        colour = theme.severities[one.severity]
        place = {"xref": xref, "yref": yref, "y0": 0, "y1": 1, "layer": "below"}
        fill = {"fillcolor": colour, "opacity": 0.16 if one.strong else 0.08, "line": {"width": 0}}
        edge = {"line": {"color": colour, "width": 2 if one.strong else 1, "dash": "solid" if one.strong else "dot"}}
        shapes += [
            {"type": "rect", "x0": one.first, "x1": one.last, **place, **fill},
            {"type": "line", "x0": one.first, "x1": one.first, **place, **edge},
        ]
    return shapes


def step_shape(step: int, theme: Theme, xref: str = "x", yref: str = "paper") -> dict[str, Any]:
    """The line of the chosen step."""
    line = {"color": theme.text, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": xref, "yref": yref, "x0": step, "x1": step, "y0": 0, "y1": 1, "line": line}


def mark_labels(marks: Iterable[Mark], x_range: tuple[float, float], theme: Theme) -> list[dict[str, Any]]:
    """The names of a chart's own findings, in rows so that none covers another."""
    width = x_range[1] - x_range[0]
    taken: list[list[tuple[float, float]]] = [[] for _ in range(ROWS)]
    labels: list[dict[str, Any]] = []
    for one in marks:
        if not (one.strong and x_range[0] <= one.first <= x_range[1]):
            continue
        # About 0.014 of a chart's width a letter, at the width that a chart has in a window of 1400 pixels.
        length = 0.014 * width * len(one.label)
        leftwards = one.first > x_range[0] + width / 2
        place = (one.first - length, float(one.first)) if leftwards else (float(one.first), one.first + length)
        row = next((at for at, row in enumerate(taken) if all(place[1] < low or high < place[0] for low, high in row)), None)
        if row is not None:
            taken[row].append(place)
            labels.append(_label(one, row, leftwards, theme))
    return labels


def _label(one: Mark, row: int, leftwards: bool, theme: Theme) -> dict[str, Any]:
    return {
        "text": one.label.replace("<", "&lt;"),
        "x": one.first,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "yshift": row * ROW_PIXELS,
        "yanchor": "bottom",
        "xanchor": "right" if leftwards else "left",
        "showarrow": False,
        "font": {"size": 11, "color": theme.severities[one.severity]},
    }
