"""How a page stays true: the browser asks several times a second, and nothing is sent where nothing has changed.

Each live page `NAME` has an interval, a tick (when the browser asked; held back while an answer is due), a beat (the tick that was
answered last) and what it has (digests of its parts). The browser's side is in assets/gradwatch.js.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, dcc, html

from gradwatch_dashboards.parts import marked

INTERVAL_MS = 350


def beat_parts(name: str) -> list[Any]:
    """The hidden parts of a live page."""
    return [
        html.Span(hidden=True, **marked(live=name)),
        dcc.Interval(id=f"{name}-interval", interval=INTERVAL_MS),
        dcc.Store(id=f"{name}-tick"),
        dcc.Store(id=f"{name}-beat"),
        dcc.Store(id=f"{name}-have"),
    ]


def beat_callback(app: Dash, name: str) -> None:
    """Ask at every interval, unless an answer is due; notice the answers."""
    browser_callback(app, "ask", Output(f"{name}-tick", "data"), Input(f"{name}-interval", "n_intervals"))
    browser_callback(app, "heard", Input(f"{name}-beat", "data"))


def browser_callback(app: Dash, function: str, *dependencies: Any) -> None:
    """A callback that is a function of assets/gradwatch.js."""
    app.clientside_callback(ClientsideFunction("gradwatch", function), *dependencies)  # type: ignore[no-untyped-call]


def digest(value: object) -> str:
    """A short name of a value that prints all it holds, the same for equal ones."""
    return blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()
