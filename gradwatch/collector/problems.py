"""Errors as problem documents (RFC 9457): whatever goes wrong, the answer says what, where and what to do."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gradwatch.collector.counts import Counts
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import PROBLEM, Problem

Handler = Callable[[Request], Awaitable[Response]]

logger = logging.getLogger(__name__)


def problem(status: int, detail: str, instance: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, instance=instance)
    return Response(msgspec.json.encode(body), status, headers, media_type=PROBLEM)


def answered(handler: Handler, counts: Counts) -> Handler:
    """The handler, with a problem document as its answer where it raises."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except RefusedError as error:
            counts.refuse(error.status)
            return problem(error.status, str(error), request.url.path)
        except UnavailableError as error:
            return _unavailable(error, request, counts)
        except ClientDisconnect:
            # The sender has gone, which is no trouble of ours; nobody reads this answer.
            return problem(400, "the request broke off", request.url.path)
        except Exception:
            counts.fail("request")
            logger.exception("%s %s failed", request.method, request.url.path)
            return problem(500, "the collector failed to answer: its log says why", request.url.path)

    return handle


def _unavailable(error: UnavailableError, request: Request, counts: Counts) -> Response:
    """Too busy is 429, whatever else passes is 503."""
    if error.retry_after is None:
        return problem(503, str(error), request.url.path)
    counts.refuse(429)
    return problem(429, str(error), request.url.path, {"Retry-After": f"{error.retry_after:g}"})
