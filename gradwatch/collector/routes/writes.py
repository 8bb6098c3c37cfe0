"""A process announces itself, and sends batches."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gradwatch.collector.answering import encoded, media_type
from gradwatch.collector.bodies import content_type, from_msgpack, received
from gradwatch.collector.columns import decode_columns
from gradwatch.collector.json_text import from_json
from gradwatch.collector.routes.endpoint import Body, Endpoint, Example, Service
from gradwatch.collector.steps import StepBatch, decode_steps
from gradwatch.wire import JSON, Ack, Batch, Opened, OpenRun


async def open_run(service: Service, request: Request) -> Response:
    """Create a run, or join it."""
    reader = from_json if content_type(request) == JSON else from_msgpack
    wanted = await received(request, service.limits, service.collector.room, lambda body: reader(body, OpenRun))
    opened = await asyncio.to_thread(service.collector.open, wanted)
    if service.collector.page:
        opened = msgspec.structs.replace(opened, page=f"{service.collector.page}/runs/{quote(opened.run, safe='')}")
    return encoded(opened, media_type(request), 201 if opened.created else 200)


async def add_batch(service: Service, request: Request) -> Response:
    """Add a batch; the answer comes when it is durable."""
    reader = decode_steps if content_type(request) == JSON else decode_columns
    decode = partial(reader, tables=service.tables)
    batch, points = await received(request, service.limits, service.collector.room, decode)
    ack = await asyncio.wrap_future(service.collector.submit(request.path_params["run"], batch, points))
    return encoded(ack, media_type(request))


OPEN_EXAMPLE = Example(
    "a new run",
    "A process announces itself and creates the run",
    {
        "id": "demo-run",
        "process": "host-1-4711",
        "name": "search agents",
        "project": "demo",
        "config": {"learning_rate": 1e-06},
        "roles": {"solver": {}, "verifier": {}},
    },
)
STEPS_EXAMPLE = Example(
    "two steps",
    "Two series by their framework's keys, one by its axes; a NaN, and a series without a value at step 2",
    {
        "id": "host-1-4711-0001",
        "process": "host-1-4711",
        "series": ["train/loss", "solver/grad_norm", {"metric": "reward", "role": "solver", "stat": "mean"}],
        "steps": [
            {"step": 1, "wall_time": 1767225600.0, "value": [0.71, 1.3, 0.25]},
            {"step": 2, "wall_time": 1767225601.5, "value": ["NaN", 1.4, None]},
        ],
    },
)
REST_EXAMPLE = Example(
    "samples, a checkpoint, an event and the end",
    "What goes beside points; without an id a batch that is sent twice is there twice",
    {
        "process": "host-1-4711",
        "samples": [{"step": 2, "role": "solver", "prompt": "2 + 2 =", "output": " 4", "rewards": {"accuracy": 1.0}}],
        "checkpoints": [{"step": 2, "uri": "out/step-2", "metrics": {"eval/accuracy": 0.5}}],
        "events": [{"kind": "note", "message": "learning rate halved", "step": 2}],
        "status": "finished",
    },
)

WRITES: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/api/v1/runs",
        "Announce a process: create a run, or join it",
        open_run,
        Opened,
        Body(OpenRun, OpenRun, (OPEN_EXAMPLE,)),
        status=201,
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/batches",
        "Add points, samples, checkpoints and events; the answer comes when they are durable",
        add_batch,
        Ack,
        Body(StepBatch, Batch, (STEPS_EXAMPLE, REST_EXAMPLE)),
    ),
)
