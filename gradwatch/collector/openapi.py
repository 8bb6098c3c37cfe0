"""The OpenAPI document, made from the table of routes: what is described is what is served. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gradwatch.collector.routes.endpoint import Body, Endpoint, Parameter
from gradwatch.schema import RunState
from gradwatch.wire import JSON, MSGPACK, PROBLEM, Problem

REF = "#/components/schemas/{name}"
ABOUT = (
    'Times are Unix seconds. In JSON a number that is not finite is "NaN", "Infinity" or "-Infinity"; msgpack keeps its bits. '
    "Bodies may be sent with Content-Encoding gzip or zstd. Errors are problem documents."
)
TYPES = {int: "integer", float: "number", str: "string"}


def document(endpoints: Sequence[Endpoint], version: str, has_key: bool) -> dict[str, Any]:
    """The description of these routes."""
    kinds = [one for one in _kinds(endpoints) if one is not str]
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    # A property of the record, which its schema therefore lacks.
    components[RunState.__name__]["properties"]["health"] = {"enum": ["critical", "warning", "healthy"]}
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "gradwatch collector", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_key:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"key": []}]
    return described


def _kinds(endpoints: Sequence[Endpoint]) -> list[type]:
    kinds: dict[type, None] = {Problem: None}
    for one in endpoints:
        kinds[one.gives] = None
        if one.takes is not None:
            kinds |= {one.takes.json: None, one.takes.msgpack: None}
    return list(kinds)


def _operation(one: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": one.summary,
        "operationId": one.handler.__name__ if one.takes else f"{one.method.lower()}{one.path}".replace("/", "_"),
        "parameters": [*_path_parameters(one.path), *map(_parameter, one.parameters)],
        "responses": {
            str(one.status): {"description": "the answer", "content": _content(one)},
            "default": {"description": "an error", "content": {PROBLEM: {"schema": _ref(Problem)}}},
        },
    }
    if one.takes is not None:
        operation["requestBody"] = _body(one.takes)
    return operation


def _content(one: Endpoint) -> dict[str, Any]:
    if one.gives is str:
        return {"text/plain": {"schema": {"type": "string"}}}
    return {JSON: {"schema": _ref(one.gives)}, MSGPACK: {"schema": _ref(one.gives)}}


def _body(takes: Body) -> dict[str, Any]:
    examples = {one.name: {"summary": one.summary, "value": one.body} for one in takes.examples}
    content = {JSON: {"schema": _ref(takes.json), "examples": examples}, MSGPACK: {"schema": _ref(takes.msgpack)}}
    return {"required": True, "content": content}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    if "{run}" not in path:
        return []
    return [
        {
            "name": "run",
            "in": "path",
            "required": True,
            "description": "the run's id",
            "schema": {"type": "string"},
            "example": "demo-run",
        }
    ]


def _parameter(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[one.kind]}
    return {
        "name": one.name,
        "in": "query",
        "description": one.meaning,
        "schema": {"type": "array", "items": schema} if one.many else schema,
    }


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": REF.format(name=kind.__name__)}
