"""Small pieces that the pages share: links, badges, times, texts."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from dash import html

from gradwatch.schema import RunState
from gradwatch_dashboards.palette import SEVERITY_SHAPES, Ink

Child = Any
"""What Dash takes as a child: a component, a text, a number, or a list of them."""

STATUS_SHAPES = {"running": "▶", "finished": "■", "interrupted": "‖", "failed": "✖"}
NONFINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
LONG_TEXT = 400


def aria(**names: str) -> dict[str, Any]:
    """Attributes such as `aria-label`."""
    return {f"aria-{name}": value for name, value in names.items()}


def marked(**values: str) -> dict[str, Any]:
    """Attributes such as `data-inside`, by which assets/gradwatch.js knows an element."""
    return {f"data-{name}": value for name, value in values.items()}


def link(children: Child, href: str, class_name: str = "", **attributes: Any) -> html.A:
    """A link to another state of the pages; followed without loading the page anew (see assets/gradwatch.js)."""
    return html.A(children, href=href, className=class_name or None, **marked(inside="1"), **attributes)


def severity(name: str) -> html.Span:
    """A severity or a health as shape, word and colour."""
    return html.Span([_shape(SEVERITY_SHAPES[name]), " ", name], className=f"badge {name}")


def status(name: str) -> html.Span:
    """A run's status as shape and word."""
    return html.Span([_shape(STATUS_SHAPES.get(name, "·")), " ", name], className=f"status {name}")


def _shape(shape: str) -> html.Span:
    return html.Span(shape, className="shape", **aria(hidden="true"))


def ago(seconds: float) -> Child:
    """A Unix time, which the browser turns into `3 s ago` and keeps true."""
    if not seconds:
        return html.Span("never", className="faint")
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return html.Time(dateTime=datetime.fromtimestamp(seconds, UTC).isoformat(), title=text, **marked(ago=f"{seconds:.3f}"))


def step_range(first: int, last: int) -> str:
    """`step 220` or `steps 220–231`."""
    return f"step {first:,}" if first == last else f"steps {first:,}–{last:,}"


def swatch(ink: Ink) -> html.Span:
    """A short piece of a role's line."""
    style = {"borderTopColor": ink.colour, "borderTopStyle": "solid" if ink.dash == "solid" else "dashed"}
    return html.Span(className="swatch", style=style, **aria(hidden="true"))


def role_name(role: str) -> str:
    """What a role is called; "" is the whole run."""
    return role or "whole run"


def long_text(text: str, name: str) -> Child:
    """A text as text; a long one opens where the reader asks for the rest."""
    if not text:
        return html.Span("empty", className="faint")
    if len(text) <= LONG_TEXT:
        return html.Pre(text)
    summary = html.Summary([html.Pre(text[:LONG_TEXT] + " …"), html.Span(f"show all {len(text):,} characters of the {name}")])
    return html.Details([summary, html.Pre(text)], className="long")


def number(value: float | None) -> str:
    """A number in a table."""
    if value is None:
        return "–"
    return f"{value:,.4g}" if math.isfinite(value) else NONFINITE[str(value)]


def findings_count(state: RunState) -> Child:
    """How many findings of each severity, as words: those that go on, then those that are over."""
    names = ("critical", "warning", "info")
    said = [f"{count:,} {name}" for name in names if (count := state.findings.get(name))]
    over = [f"{count:,} {name} over" for name in names if (count := state.resolved.get(name))]
    if not over:
        return ", ".join(said) or "none"
    return [", ".join(said), html.Span((", " if said else "") + ", ".join(over), className="faint")]
