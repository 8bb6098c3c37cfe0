"""The points of a run as they are committed, with a wait for the next ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from gradwatch.client.answers import Tail
from gradwatch.collector.answering import encoded, media_type
from gradwatch.collector.core import Collector
from gradwatch.collector.routes.endpoint import Asked, Endpoint, Parameter, Service, asked, of_run
from gradwatch.collector.routes.reads import RUN
from gradwatch.errors import RefusedError

MOST_POINTS = 100_000
MOST_SECONDS = 30.0
PARAMETERS = (
    Parameter("after", int, "the sequence number up to which points are known; 0, where nothing is said, for all"),
    Parameter("limit", int, f"at most so many points, {MOST_POINTS:,} where nothing is said"),
    Parameter("wait", float, f"seconds to wait where there are none yet, up to {MOST_SECONDS:g}"),
)


async def tail(service: Service, request: Request) -> Response:
    """What came after a sequence number; an empty answer after the wait, or when the server is about to end."""
    question, media = asked(request, PARAMETERS), media_type(request)
    after, limit, seconds = (question.given[one.name] or 0 for one in PARAMETERS)
    if after < 0 or limit < 0 or not 0 <= seconds <= MOST_SECONDS:
        raise RefusedError(f"after and limit must not be negative, and wait must lie within 0 and {MOST_SECONDS:g} seconds")
    limit = min(limit or MOST_POINTS, MOST_POINTS)
    news = asyncio.Event()
    with service.collector.listeners.listening(question.run, _waker(news)):
        # Listening begins before the look, so that no commit falls between the two.
        found = await asyncio.to_thread(_tail, service.collector, question, after, limit)
        if not found.points and seconds:
            await _first(news, service.stopping, seconds)
            found = await asyncio.to_thread(_tail, service.collector, question, after, limit)
    return await asyncio.to_thread(encoded, found, media)


def _tail(collector: Collector, question: Asked, after: int, limit: int) -> Tail:
    def answer(collector: Collector, question: Asked) -> Tail:
        last, block = collector.tail(question.run, after, limit)
        rows = zip(block.index, block.step, block.value, block.wall_time, block.flags, strict=True)
        return Tail(block.series, list(rows), last)

    found = of_run(collector, question, answer)
    assert isinstance(found, Tail)
    return found


def _waker(news: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()

    def wake() -> None:
        # The server may have ended while a commit was under way.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(news.set)

    return wake


async def _first(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


TAIL = Endpoint("GET", f"{RUN}/tail", "Points in the order in which they were committed", tail, Tail, parameters=PARAMETERS)
