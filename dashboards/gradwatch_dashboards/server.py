"""Dash on a FastAPI application of its own, which the collector's mounts at "/".

Of its own, so that Dash's middleware stays out of the way of ingest, and its catch-all is not needed: only the pages' addresses
answer, everything else is a 404.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from html import escape
from typing import Any

from dash import Dash
from dash.backends._fastapi import FastAPIDashServer, reset_current_request, set_current_request
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from gradwatch_dashboards.shell import SHELL

LOG = logging.getLogger(__name__)


class PageServer(FastAPIDashServer):
    """Dash's FastAPI server without WebSocket, which the pages do not use and access control would have to cover."""

    websocket_capability = False

    @staticmethod
    def create_app(name: str = "", config: dict[str, Any] | None = None) -> FastAPI:
        """An application without documentation pages."""
        return FastAPI(title="gradwatch pages", openapi_url=None, docs_url=None, redoc_url=None)


def page_server(package: str) -> Dash:
    """A Dash application that loads everything from this process and shows no traces of errors."""
    return Dash(
        package,
        backend=PageServer,
        title="gradwatch",
        update_title="",
        index_string=SHELL,
        serve_locally=True,
        suppress_callback_exceptions=True,
        add_log_handler=False,
        on_error=_said_in_the_log,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )


def serve_pages(dash: Dash, paths: Sequence[str]) -> FastAPI:
    """The application, with Dash's index at `paths`."""
    # Dash does this at its first request, which a deep link's would come before.
    dash._setup_server()  # type: ignore[no-untyped-call]
    app: FastAPI = dash.server

    async def index(request: Request) -> Response:
        token = set_current_request(request)  # type: ignore[no-untyped-call]
        try:
            return HTMLResponse(dash.index())  # type: ignore[no-untyped-call]
        finally:
            reset_current_request(token)  # type: ignore[no-untyped-call]

    async def missing(request: Request, _error: Exception) -> Response:
        return HTMLResponse(NOT_FOUND.format(path=escape(request.url.path)), status_code=404)

    for path in paths:
        app.add_api_route(path, index, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(404, missing)
    return app


NOT_FOUND = """<!doctype html><html lang="en"><head><title>No such page · gradwatch</title>
<link rel="stylesheet" href="/assets/gradwatch.css"></head><body><main class="lone"><h1>No such page</h1>
<p>Nothing is at <code>{path}</code>.</p><p><a href="/">See all runs</a></p></main></body></html>"""


def _said_in_the_log(error: Exception) -> None:
    """An error in a callback leaves the page as it is; the next update tries again."""
    LOG.error("the page could not be updated", exc_info=error)
