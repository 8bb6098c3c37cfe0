"""What a route is: how it is asked, what it takes and gives, and what answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from gradwatch.collector.answering import encoded, media_type
from gradwatch.collector.bodies import Limits
from gradwatch.collector.core import Collector
from gradwatch.collector.tables import Tables
from gradwatch.errors import RefusedError, StoreError
from gradwatch.exporters.prometheus import PrometheusExporter


class Service(NamedTuple):
    """What the routes share."""

    collector: Collector
    exporter: PrometheusExporter
    limits: Limits
    tables: Tables
    stopping: asyncio.Event
    """Set when the server is to end: whoever waits for news answers at once."""


class Parameter(NamedTuple):
    """One query parameter, a number from `least` on. `many`: it may be given several times."""

    name: str
    kind: type
    meaning: str
    many: bool = False
    least: int = -(2**63)


class Example(NamedTuple):
    """A JSON body that can be sent as it is."""

    name: str
    summary: str
    body: Mapping[str, Any]


class Body(NamedTuple):
    """What a route takes: as JSON, as msgpack, and JSON examples."""

    json: type
    msgpack: type
    examples: tuple[Example, ...]


Handler = Callable[[Service, Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """One method of one path; `gives` is the record that it answers with, `status` that answer's."""

    method: str
    path: str
    summary: str
    handler: Handler
    gives: type
    takes: Body | None = None
    parameters: tuple[Parameter, ...] = ()
    status: int = 200


class Asked(NamedTuple):
    """A question: which run, and the given parameters by name."""

    run: str
    given: Mapping[str, Any]


def asked(request: Request, parameters: tuple[Parameter, ...]) -> Asked:
    """What the request asks; RefusedError for a parameter that is unknown, or not what it must be."""
    known = {one.name: one for one in parameters}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RefusedError(f"there is no parameter {unknown[0][:100]!r} here; there are {', '.join(known) or 'none'}")
    return Asked(request.path_params.get("run", ""), {one.name: _value(request, one) for one in parameters})


def _value(request: Request, one: Parameter) -> Any:
    texts = request.query_params.getlist(one.name)
    if one.many:
        return tuple(texts) or None
    if not texts:
        return None
    try:
        value = one.kind(texts[-1])
    except ValueError as error:
        raise RefusedError(f"{one.name}={texts[-1][:100]!r}: must be {_WORDS[one.kind]}") from error
    if one.kind is int and not one.least <= value < 2**63:
        raise RefusedError(f"{one.name}={texts[-1][:100]!r}: must lie within {one.least} and {2**63 - 1}")
    return value


_WORDS = {int: "a whole number", float: "a number", str: "text"}


def read(
    path: str, summary: str, gives: type, answer: Callable[[Collector, Asked], object], parameters: tuple[Parameter, ...] = ()
) -> Endpoint:
    """A route that asks the store: on a thread, since that takes as long as it takes."""

    async def handle(service: Service, request: Request) -> Response:
        question, media = asked(request, parameters), media_type(request)
        return await asyncio.to_thread(lambda: encoded(of_run(service.collector, question, answer), media))

    return Endpoint("GET", path, summary, handle, gives, parameters=parameters)


def of_run(collector: Collector, question: Asked, answer: Callable[[Collector, Asked], object]) -> object:
    """The answer; RefusedError 404 where the store has no such run."""
    try:
        return answer(collector, question)
    except StoreError as error:
        if question.run and not _exists(collector, question.run):
            raise RefusedError(f"run {question.run!r} does not exist: GET /api/v1/runs lists those that do", 404) from error
        raise


def _exists(collector: Collector, run: str) -> bool:
    try:
        collector.state(run)
    except StoreError:
        return False
    return True
