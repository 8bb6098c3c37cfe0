"""The page of one run: its head, findings, charts, checkpoints, events and samples, each sent only when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from dash import Dash, Input, Output, State, dcc, html, no_update

from gradwatch.errors import RefusedError, StoreError
from gradwatch_dashboards.live import beat_callback, beat_parts, browser_callback, digest
from gradwatch_dashboards.pages.figures import register_figures
from gradwatch_dashboards.pages.page import Page
from gradwatch_dashboards.parts import aria, link
from gradwatch_dashboards.reader import Reader
from gradwatch_dashboards.run_parts.checkpoints import checkpoints_info, checkpoints_table
from gradwatch_dashboards.run_parts.events import events_info, events_list
from gradwatch_dashboards.run_parts.findings import findings_info, findings_list
from gradwatch_dashboards.run_parts.grid import grid, grid_info
from gradwatch_dashboards.run_parts.head import head, head_info, page_title
from gradwatch_dashboards.run_parts.samples import SHOWN, SamplesInfo, samples_info, samples_table
from gradwatch_dashboards.run_parts.toolbar import toolbar, toolbar_info
from gradwatch_dashboards.scene import Scene, read_scene
from gradwatch_dashboards.view import parse

PARTS = ("head", "findings", "toolbar", "charts", "checkpoints", "events", "samples")


async def _layout(reader: Reader, name: str, search: str) -> Any:
    run = unquote(name)
    try:
        await reader.state(run)
    except (StoreError, RefusedError):
        return unknown_run(run)
    return [
        dcc.Store(id="run-id", data=run),
        html.Div(html.P("Loading …", className="faint"), id="run-head", className="head"),
        html.Div([_aside(), html.Div([_tools(search), html.Div(id="run-charts")], className="main")], className="split"),
        html.Section([_step_field(), html.Div(id="run-samples")], id="samples", **aria(label="Samples")),
        dcc.Store(id="run-drawn"),
        *beat_parts("run"),
    ]


def unknown_run(run: str) -> Any:
    """What stands where a run would, if there were one."""
    back = html.P(link("See all runs", "/", "strong"))
    said = html.P(f"There is no run with the id {run!r} here.")
    return html.Section([html.H1("No such run"), said, back], className="empty", id="unknown-run")


def _aside() -> html.Aside:
    found = html.Section(id="run-findings", **aria(label="Findings"))
    saved, happened = (html.Section(id=f"run-{name}", **aria(label=name.capitalize())) for name in ("checkpoints", "events"))
    return html.Aside([found, saved, happened], **aria(label="Findings, checkpoints and events"))


def _tools(search: str) -> html.Div:
    field = dcc.Input(
        id="filter", type="search", value=parse(search).metric, debounce=0.25, placeholder="e.g. grad norm", maxLength=100
    )
    return html.Div(
        [html.Div(id="run-toolbar", className="toolbar"), html.Label(["filter ", field], className="field")], className="tools"
    )


def _step_field() -> html.Label:
    field = dcc.Input(id="sample-step", type="number", debounce=True, min=0, step=1, placeholder="step")
    return html.Label(["samples of step ", field], className="field right")


def _register(app: Dash, reader: Reader) -> None:
    beat_callback(app, "run")
    browser_callback(app, "filtered", Input("filter", "value"))
    browser_callback(app, "stepped", Input("sample-step", "value"))
    browser_callback(app, "titled", Input("run-have", "data"))
    register_figures(app, reader)

    async def update(tick: float | None, search: str, run: str, have: dict[str, Any] | None) -> tuple[Any, ...]:
        scene = await read_scene(reader, run, parse(search))
        now: dict[str, Any] = {"title": page_title(scene.state), "charts-of": digest((scene.stamp, scene.view))}
        shown = []
        for name, (info, render) in zip(PARTS, await _infos(reader, scene), strict=True):
            now[name] = digest(info)
            shown.append(no_update if have is not None and have.get(name) == now[name] else render(info))
        return *shown, (no_update if now == have else now), tick

    app.callback(
        *(Output(f"run-{name}", "children") for name in PARTS),
        Output("run-have", "data"),
        Output("run-beat", "data"),
        Input("run-tick", "data"),
        Input("url", "search"),
        State("run-id", "data"),
        State("run-have", "data"),
    )(update)


async def _infos(reader: Reader, scene: Scene) -> list[tuple[Any, Callable[[Any], Any]]]:
    """What each of the parts shows, and how."""
    state, view, focus, found = scene.state, scene.view, scene.focus, scene.findings
    attempts = await reader.attempts(state)
    events = await reader.events(state)
    checkpoints = checkpoints_info(await reader.checkpoints(state), await reader.pick(state), focus.attempt)
    return [
        (head_info(state, attempts, focus, found, scene.inks, view), head),
        (findings_info(state.info.id, view, focus.attempt, found, scene.inks, events), findings_list),
        (toolbar_info(state.info.id, view, focus, scene.inks), toolbar),
        (grid_info(state.info.id, view, scene.sections, scene.inks.items()), grid),
        (checkpoints, checkpoints_table),
        (events_info(events, focus.attempt), events_list),
        (await _samples(reader, scene), samples_table),
    ]


async def _samples(reader: Reader, scene: Scene) -> SamplesInfo:
    state, focus = scene.state, scene.focus
    steps = await reader.sampled_steps(state, focus.role or None)
    step = focus.step if focus.step is not None else steps[-1] if steps else None
    samples = [] if step is None else await reader.samples(state, step, focus.role or None, SHOWN + 1, focus.attempt)
    return samples_info(state.info.id, scene.view, (step, focus.role), steps, samples, scene.inks)


RUN = Page("/runs/{name}", _layout, _register)
