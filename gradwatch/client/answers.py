"""What a collector answers, as JSON and as msgpack: a list travels under its name, so that more can stand beside it."""

from __future__ import annotations

import msgspec

from gradwatch.schema import (
    Attempt,
    BestStep,
    Checkpoint,
    Event,
    RunState,
    Sample,
    Series,
    StoredFinding,
)


class Runs(msgspec.Struct, frozen=True):
    """`GET /runs`; each run also has its `health`: critical, warning or healthy."""

    runs: list[RunState]


class Attempts(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/attempts`."""

    attempts: list[Attempt]


class SpanAnswer(msgspec.Struct, frozen=True):
    """A series that has points, and the lowest and highest step among them."""

    series: Series
    first_step: int
    last_step: int


class Spans(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/series`."""

    series: list[SpanAnswer]


class CurveAnswer(msgspec.Struct, frozen=True):
    """One series: the last write of each step, ascending by step."""

    series: Series
    steps: list[int]
    values: list[float]
    wall_times: list[float]


class Curves(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/curves`."""

    curves: list[CurveAnswer]


class Tail(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/tail`: each point is [position in `series`, step, value, wall time, flags]; ask on with `after`."""

    series: list[Series]
    points: list[tuple[int, int, float, float, int]]
    after: int


class Samples(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/samples`."""

    samples: list[Sample]


class SampleSteps(msgspec.Struct, frozen=True):
    """Steps that have samples."""

    steps: list[int]


class Checkpoints(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/checkpoints`."""

    checkpoints: list[Checkpoint]


class Findings(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/findings`."""

    findings: list[StoredFinding]


class Events(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/events`."""

    events: list[Event]


class Best(msgspec.Struct, frozen=True):
    """`GET /runs/{run}/best`; null where nothing says which step is better."""

    best: BestStep | None
