"""A load generator of its own process: requests made beforehand, sent over a few connections, each when the one before is answered.

`python -m harness.load URL CONNECTIONS` reads lines of JSON {"run", "kind", "metrics", "points", "requests"}, prepares the run's
requests, sends them, and answers each line with the seconds from the first byte to the last ack.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import uvloop

from gradwatch.schema import Series
from gradwatch.wire import JSON, MSGPACK, Batch, Columns

SERIES = 200
"""A request has a value of each of them for one step or more."""


class Load(msgspec.Struct, frozen=True):
    """What is sent to a run: `requests` of `points` points each, as `kind` (a media type), of series of these metrics."""

    run: str
    kind: str
    metrics: list[str]
    points: int
    requests: int


class Target(NamedTuple):
    """Where it is sent to."""

    host: str
    port: int


def bodies(load: Load) -> list[bytes]:
    names = [(load.metrics[at % len(load.metrics)], at // len(load.metrics)) for at in range(SERIES)]
    series = [Series(metric, f"role{role}/{metric}", role=f"role{role}") for metric, role in names]
    dice, steps = Random(1), load.points // SERIES
    values = [1.0 + dice.random() / 5 for _ in range(load.points)]
    encode = _columns if load.kind == MSGPACK else _steps
    return [encode(load, series, values, number, steps) for number in range(load.requests)]


def _columns(load: Load, series: list[Series], values: list[float], number: int, steps: int) -> bytes:
    columns = Columns(
        series=series,
        index=array("i", range(SERIES)).tobytes() * steps,
        step=b"".join(array("q", [number * steps + step]).tobytes() * SERIES for step in range(steps)),
        wall_time=array("d", [1767225600.0 + number]).tobytes() * load.points,
        value=array("d", values).tobytes(),
        flags=bytes(load.points),
    )
    return msgspec.msgpack.encode(Batch(id=f"{load.run}-{number}", process="p", columns=columns))


def _steps(load: Load, series: list[Series], values: list[float], number: int, steps: int) -> bytes:
    rows = [
        {"step": number * steps + at, "wall_time": 1767225600.0 + number, "value": values[at * SERIES : (at + 1) * SERIES]}
        for at in range(steps)
    ]
    keys = [one.source_key for one in series]
    return msgspec.json.encode({"id": f"{load.run}-{number}", "process": "p", "series": keys, "steps": rows})


def request(target: Target, path: str, kind: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Statuses(Counter[bytes]):
    """How many answers had each status."""


async def converse(target: Target, requests: Sequence[bytes], start: asyncio.Event, statuses: Statuses) -> None:
    """Send the requests one by one; only the head of an answer is looked at."""
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=2**20)
    await start.wait()
    for one in requests:
        writer.write(one)
        head = await reader.readuntil(b"\r\n\r\n")
        statuses[head[9:12]] += 1
        at = head.lower().index(b"content-length:")
        await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
    writer.close()


async def seconds(target: Target, requests: Sequence[bytes], connections: int) -> float:
    """From the first byte to the last ack; RuntimeError where anything else than an ack came."""
    start, statuses = asyncio.Event(), Statuses()
    talks = [asyncio.create_task(converse(target, requests[at::connections], start, statuses)) for at in range(connections)]
    await asyncio.sleep(0.05)  # until all are connected
    begun = time.perf_counter()
    start.set()
    await asyncio.gather(*talks)
    if set(statuses) - {b"200", b"201"}:
        raise RuntimeError(f"the collector answered {dict(statuses)}")
    return time.perf_counter() - begun


def main() -> None:
    parts = urlsplit(sys.argv[1])
    assert parts.hostname is not None
    assert parts.port is not None
    target = Target(parts.hostname, parts.port)
    for line in sys.stdin:
        load = msgspec.json.decode(line, type=Load)
        opening = request(target, "/api/v1/runs", JSON, msgspec.json.encode({"id": load.run, "process": "p"}))
        path = f"/api/v1/runs/{load.run}/batches"
        prepared = [request(target, path, load.kind, body) for body in bodies(load)]
        uvloop.run(seconds(target, [opening], 1))
        print(json.dumps({"seconds": uvloop.run(seconds(target, prepared, int(sys.argv[2])))}), flush=True)


if __name__ == "__main__":
    main()
