"""The records that cross between the parts of gradwatch."""

from gradwatch.schema.findings import ROLLBACK, SEVERITIES, SKIP_STEP, STOP, Advice, Finding, StoredFinding
from gradwatch.schema.points import FILTERED, FROM_NULL, NO_RANK, Block, Curve, Point, Selection, Series, Span, Trace
from gradwatch.schema.runs import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    RUNNING,
    STATUSES,
    Attempt,
    BestStep,
    Checkpoint,
    Event,
    RunInfo,
    RunState,
)
from gradwatch.schema.samples import Sample

__all__ = [
    "FAILED",
    "FILTERED",
    "FINISHED",
    "FROM_NULL",
    "INTERRUPTED",
    "NO_RANK",
    "ROLLBACK",
    "RUNNING",
    "SEVERITIES",
    "SKIP_STEP",
    "STATUSES",
    "STOP",
    "Advice",
    "Attempt",
    "BestStep",
    "Block",
    "Checkpoint",
    "Curve",
    "Event",
    "Finding",
    "Point",
    "RunInfo",
    "RunState",
    "Sample",
    "Selection",
    "Series",
    "Span",
    "StoredFinding",
    "Trace",
]
