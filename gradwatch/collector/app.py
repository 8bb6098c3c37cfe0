"""The collector's HTTP application. A page may be mounted on it afterwards: nothing below `/api` can be taken from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gradwatch.collector.access import LOOPBACK, Access, Guard, check_bind
from gradwatch.collector.bodies import LIMITS, Limits
from gradwatch.collector.core import Collector
from gradwatch.collector.json_text import to_json
from gradwatch.collector.openapi import document
from gradwatch.collector.problems import answered, problem
from gradwatch.collector.routes.docs import DOCUMENT, docs_routes
from gradwatch.collector.routes.endpoint import Endpoint, Service
from gradwatch.collector.routes.health import HEALTH
from gradwatch.collector.routes.login import Login
from gradwatch.collector.routes.reads import READS
from gradwatch.collector.routes.tail import TAIL
from gradwatch.collector.routes.writes import WRITES
from gradwatch.collector.tables import Tables
from gradwatch.exporters.prometheus import PrometheusExporter
from gradwatch.wire import JSON

ENDPOINTS: tuple[Endpoint, ...] = (*WRITES, *READS, TAIL, *HEALTH)


def create_app(collector: Collector, access: Access = LOOPBACK, limits: Limits = LIMITS) -> FastAPI:
    """The application on a started collector. SettingsError where it would be open to a network without a key."""
    check_bind(access.host, access.api_key)
    app = FastAPI(title="gradwatch collector", docs_url=None, redoc_url=None, openapi_url=None)
    service = Service(collector, PrometheusExporter(collector, collector.page), limits, Tables(), asyncio.Event())
    described = to_json(document(ENDPOINTS, version("gradwatch"), bool(access.api_key)))

    async def openapi(_: Request) -> Response:
        return Response(described, media_type=JSON)

    routes: list[BaseRoute] = [_route(one, service) for one in ENDPOINTS]
    routes += [Route(DOCUMENT, openapi, methods=["GET"]), *docs_routes(), *Login(access.api_key, collector.counts).routes()]
    unknown = Unknown(routes, collector)
    app.router.routes.extend([*routes, Route("/api", unknown), Route("/api/{rest:path}", unknown)])
    app.state.stopping = service.stopping
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_middleware(Guard, access=access, counts=collector.counts)
    return app


def _route(one: Endpoint, service: Service) -> Route:
    return Route(one.path, answered(partial(one.handler, service), service.collector.counts), methods=[one.method])


class Unknown:
    """Answers what no route below `/api` does, whatever the method, so that no page mounted later can."""

    def __init__(self, routes: Sequence[BaseRoute], collector: Collector) -> None:
        self._routes = [one for one in routes if isinstance(one, Route)]
        self._counts = collector.counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A problem document: 405 where another method would do, else 404."""
        path, method = scope["path"], scope["method"]
        allowed = sorted({name for one in self._routes if one.path_regex.match(path) for name in one.methods or ()})
        if allowed:
            detail, headers = f"{method} does nothing here: {' or '.join(allowed)} does", {"Allow": ", ".join(allowed)}
            answer = problem(405, detail, path, headers)
        else:
            answer = problem(404, f"there is nothing at {path[:200]}: GET {DOCUMENT} lists what there is", path)
        self._counts.refuse(answer.status_code)
        await answer(scope, receive, send)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), request.url.path, error.headers)
