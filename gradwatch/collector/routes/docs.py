"""`/api/docs`: the interface's description as a page, from files that are installed; nothing is fetched from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

ASSETS = "/api/docs/assets"
DOCUMENT = "/api/openapi.json"


async def _page(_: Request) -> Response:
    return get_swagger_ui_html(
        openapi_url=DOCUMENT,
        title="gradwatch API",
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon.png",
    )


def docs_routes() -> list[BaseRoute]:
    """The page and its files."""
    folder = str(files("fastapi_offline") / "static")
    return [Mount(ASSETS, StaticFiles(directory=folder)), Route("/api/docs", _page, methods=["GET"])]
