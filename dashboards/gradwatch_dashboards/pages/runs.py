"""The page of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from gradwatch.schema import RunState
from gradwatch_dashboards.live import beat_callback, beat_parts, digest
from gradwatch_dashboards.pages.page import Page
from gradwatch_dashboards.parts import ago, aria, findings_count, link, marked, severity, status
from gradwatch_dashboards.reader import Reader
from gradwatch_dashboards.view import run_path

COLUMNS = ("Run", "Health", "Findings", "Status", "Newest step", "Updated", "Project")
MAX_RUNS = 500
FIRST_RUN = """import gradwatch

run = gradwatch.init(project="search", name="first")
run.log({"loss": 0.3, "reward": 0.5}, step=0)
run.finish()"""


async def _layout(_reader: Reader, _name: str, _search: str) -> Any:
    table = html.Div(html.P("Loading …", className="faint"), id="runs-table")
    return [html.H1("Runs"), table, *beat_parts("runs")]


def _register(app: Dash, reader: Reader) -> None:
    beat_callback(app, "runs")

    async def update(tick: float | None, have: str | None) -> tuple[Any, Any, Any]:
        states = await reader.states()
        now = digest(states)
        return (no_update if now == have else runs_table(states)), (no_update if now == have else now), tick

    app.callback(
        Output("runs-table", "children"),
        Output("runs-have", "data"),
        Output("runs-beat", "data"),
        Input("runs-tick", "data"),
        State("runs-have", "data"),
    )(update)


def runs_table(states: Sequence[RunState]) -> Any:
    """The table of runs, or how to get the first one."""
    if not states:
        return _empty()
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in COLUMNS]))
    body = html.Tbody([_row(one) for one in states[:MAX_RUNS]])
    more = (
        html.P(f"{len(states) - MAX_RUNS:,} older runs are not shown; `gradwatch runs` lists all.") if states[MAX_RUNS:] else None
    )
    return [html.Table([head, body], className="runs", **aria(label="Runs, the newest first")), more]


def _row(state: RunState) -> html.Tr:
    step = "–" if state.last_step is None else f"{state.last_step:,}"
    return html.Tr(
        [
            html.Th(link(state.info.name, run_path(state.info.id)), scope="row"),
            html.Td(severity(state.health)),
            html.Td(findings_count(state)),
            html.Td(status(state.status)),
            html.Td(step, className="number"),
            html.Td(ago(state.last_update)),
            html.Td(state.info.project),
        ],
        className=f"run {state.health}",
        key=state.info.id,
        **marked(row="1"),
    )


def _empty() -> html.Section:
    return html.Section(
        [
            html.H2("No runs yet"),
            html.P("Log one from your training loop:"),
            copyable(FIRST_RUN, "first-run"),
            html.P("Or bring in the log of a run that is over:"),
            copyable("gradwatch import path/to/log --project search", "first-import"),
            html.P("Runs appear here by themselves.", className="faint"),
        ],
        className="empty",
        **aria(label="How to log the first run"),
    )


def copyable(text: str, name: str) -> html.Div:
    """A piece of code with a button that copies it."""
    return html.Div([html.Pre(text, id=name), dcc.Clipboard(target_id=name, title="Copy", className="copy")], className="code")


RUNS = Page("/", _layout, _register)
