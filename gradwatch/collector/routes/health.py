"""Whether the process lives, whether it can take batches, and what Prometheus scrapes."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gradwatch.collector.answering import encoded, media_type
from gradwatch.collector.problems import problem
from gradwatch.collector.routes.endpoint import Endpoint, Service


class Health(msgspec.Struct, frozen=True):
    """`ok`; anything else is a problem document."""

    status: str = "ok"


async def healthz(_: Service, request: Request) -> Response:
    """The process answers."""
    return encoded(Health(), media_type(request))


async def readyz(service: Service, request: Request) -> Response:
    """The collector can take batches."""
    reasons = service.collector.problems()
    if reasons:
        return problem(503, f"the collector is not ready: {'; '.join(reasons)}", request.url.path, {"Retry-After": "5"})
    return encoded(Health(), media_type(request))


async def metrics(service: Service, request: Request) -> Response:
    """A scrape, on a thread: at 10,000 series it takes 100 ms."""
    body, content_type = await asyncio.to_thread(service.exporter.exposition, request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})


HEALTH: tuple[Endpoint, ...] = (
    Endpoint("GET", "/healthz", "Whether the process lives", healthz, Health),
    Endpoint("GET", "/readyz", "Whether batches are taken; 503 says why not", readyz, Health),
    Endpoint("GET", "/metrics", "What Prometheus scrapes, as its text format or OpenMetrics", metrics, str),
)
