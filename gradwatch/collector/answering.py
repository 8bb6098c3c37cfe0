"""Answers as the asker wants them: JSON, where a number that is not finite is a name, or msgpack, where every bit of it is kept."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gradwatch.collector.json_text import to_json
from gradwatch.wire import JSON, MSGPACK


def media_type(request: Request) -> str:
    """MSGPACK where the request asks for it, else JSON."""
    accept = request.headers.get("accept", "")
    return MSGPACK if MSGPACK in accept or "application/x-msgpack" in accept else JSON


def encoded(answer: object, media: str, status: int = 200) -> Response:
    """The answer in this media type; large ones take a while, so not on the event loop."""
    body = msgspec.msgpack.encode(answer) if media == MSGPACK else to_json(answer)
    return Response(body, status, media_type=media)
