"""The pages, put into the collector's application: the same process, the same port."""

from __future__ import annotations

import re
from typing import Any

from dash import Dash, Input, Output, State, dcc, html
from fastapi import FastAPI

from gradwatch.client.query import Query
from gradwatch_dashboards.live import browser_callback
from gradwatch_dashboards.pages import PAGES, Page
from gradwatch_dashboards.parts import aria, link
from gradwatch_dashboards.reader import Choose, Reader
from gradwatch_dashboards.server import page_server, serve_pages


def mount(app: FastAPI, query: Query, choose: Choose | None = None) -> None:
    """Serve the pages at `/` of `app`, with what `query` can tell; `choose` picks what is worth keeping of a run.

    To be called last: everything that no earlier route of `app` answers is the pages' from then on, and what is no page is a 404.
    `query` and `choose` are called in threads.
    """
    app.mount("/", serve_pages(pages_of(query, choose), [page.path for page in PAGES]), name="pages")


def pages_of(query: Query, choose: Choose | None = None) -> Dash:
    """The Dash application of all pages."""
    dash = page_server(__package__ or "gradwatch_dashboards")
    dash.layout = _shell()
    reader = Reader(query, choose)
    _register_shell(dash, reader)
    for page in PAGES:
        page.register(dash, reader)
    return dash


def find_page(path: str) -> tuple[Page, str] | None:
    """The page at an address, and what stands there for its `{name}`."""
    for page in PAGES:
        found = re.fullmatch(re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(page.path)), path or "/")
        if found is not None:
            return page, found[1] if found.groups() else ""
    return None


def _shell() -> html.Div:
    brand = link([html.Img(src="/assets/favicon.svg", alt=""), "gradwatch"], "/", "brand")
    live = html.Span(id="live", role="status", **aria(live="polite"))
    toggle = html.Button(
        "Theme", id="theme-toggle", type="button", title="Light or dark", **aria(label="Switch between light and dark")
    )
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="theme"),
            html.Header([brand, html.Nav(link("Runs", "/"), **aria(label="Pages")), live, toggle], className="bar"),
            html.Main(html.P("Loading …", className="faint"), id="main", tabIndex="-1"),
        ]
    )


def _register_shell(dash: Dash, reader: Reader) -> None:
    browser_callback(dash, "theme", Output("theme", "data"), Input("theme-toggle", "n_clicks"))

    async def show(path: str, search: str) -> Any:
        found = find_page(path)
        if found is None:
            return html.P(["Nothing is here. ", link("See all runs", "/")])
        return await found[0].layout(reader, found[1], search or "")

    dash.callback(Output("main", "children"), Input("url", "pathname"), State("url", "search"))(show)
