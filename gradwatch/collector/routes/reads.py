"""Questions about runs."""

from __future__ import annotations

from typing import Any

import msgspec

from gradwatch.client.answers import (
    Attempts,
    Best,
    Checkpoints,
    CurveAnswer,
    Curves,
    Events,
    Findings,
    Runs,
    Samples,
    SampleSteps,
    SpanAnswer,
    Spans,
)
from gradwatch.collector.core import Collector
from gradwatch.collector.routes.endpoint import Asked, Endpoint, Parameter, read
from gradwatch.schema import RunState, Selection

RUN = "/api/v1/runs/{run}"


def with_health(state: RunState) -> dict[str, Any]:
    """The run as it stands, and its health as a word."""
    return {**msgspec.structs.asdict(state), "health": state.health}


def _runs(collector: Collector, asked: Asked) -> object:
    return {"runs": [with_health(one) for one in collector.states(asked.given["project"])]}


def _run(collector: Collector, asked: Asked) -> object:
    return with_health(collector.state(asked.run))


def _attempts(collector: Collector, asked: Asked) -> object:
    return Attempts(collector.attempts(asked.run))


def _spans(collector: Collector, asked: Asked) -> object:
    return Spans([SpanAnswer(*one) for one in collector.spans(asked.run)])


def _curves(collector: Collector, asked: Asked) -> object:
    given = dict(asked.given)
    several = {f"{name}s": given.pop(name) for name in ("metric", "role", "scope")}
    selection = Selection(**several, buckets=given.pop("buckets") or 0, **given)
    return Curves([CurveAnswer(*one) for one in collector.curves(asked.run, selection)])


def _samples(collector: Collector, asked: Asked) -> object:
    return Samples(collector.samples(asked.run, **asked.given))


def _sample_steps(collector: Collector, asked: Asked) -> object:
    return SampleSteps(collector.sample_steps(asked.run, **asked.given))


def _checkpoints(collector: Collector, asked: Asked) -> object:
    return Checkpoints(collector.checkpoints(asked.run))


def _findings(collector: Collector, asked: Asked) -> object:
    return Findings(collector.findings(asked.run))


def _events(collector: Collector, asked: Asked) -> object:
    return Events(collector.events(asked.run))


def _best(collector: Collector, asked: Asked) -> object:
    return Best(collector.best(asked.run))


SELECTION = (
    Parameter("metric", str, "only this metric; repeat it for several", many=True),
    Parameter("role", str, "only this role; repeat it for several, empty for the run as a whole", many=True),
    Parameter("scope", str, "only this module group; repeat it for several, empty for the whole model", many=True),
    Parameter("stream", str, "only this stream: train, eval or rollout"),
    Parameter("attempt", int, "only this attempt"),
    Parameter("first_step", int, "from this step on"),
    Parameter("last_step", int, "up to this step"),
    Parameter("buckets", int, "thin each curve to so many step ranges; extremes and non-finite values stay", least=0),
)
SAMPLES = (
    Parameter("step", int, "only this step"),
    Parameter("role", str, "only this role"),
    Parameter("limit", int, "at most so many", least=0),
)

READS: tuple[Endpoint, ...] = (
    read(
        "/api/v1/runs", "All runs as they stand, the newest first", Runs, _runs, (Parameter("project", str, "only this project"),)
    ),
    read(RUN, "One run as it stands", RunState, _run),
    read(f"{RUN}/attempts", "The run's attempts", Attempts, _attempts),
    read(f"{RUN}/series", "The run's series with their first and last step", Spans, _spans),
    read(f"{RUN}/curves", "Selected series, each with the last write of every step", Curves, _curves, SELECTION),
    read(f"{RUN}/samples", "The run's samples by step", Samples, _samples, SAMPLES),
    read(
        f"{RUN}/sample-steps", "The steps that have samples", SampleSteps, _sample_steps, (Parameter("role", str, "of this role"),)
    ),
    read(f"{RUN}/checkpoints", "The run's checkpoints", Checkpoints, _checkpoints),
    read(f"{RUN}/findings", "The run's findings by attempt and start step", Findings, _findings),
    read(f"{RUN}/events", "What happened to the run", Events, _events),
    read(f"{RUN}/best", "The step worth keeping, and why", Best, _best),
)
