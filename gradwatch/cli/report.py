"""What `diagnose` says of one run, as data; text and JSON are made from it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gradwatch.checkpoints.rating import Measured
from gradwatch.checkpoints.selection import best_of_run
from gradwatch.cli.ingest import ingested
from gradwatch.importers.blocks import RunLog
from gradwatch.schema import SEVERITIES, BestStep, Finding, RunInfo, Series, Span, StoredFinding, Trace

MAX_CURVES = 12
"""Findings, from the worst on, whose curves are kept to be drawn."""


class Judged(Protocol):
    """What a report is made from: a store of runs that a watcher has judged. Curves are read one by one: a run may be large."""

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings."""

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step."""

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series, one by one."""


class Report(NamedTuple):
    """One run's diagnosis. `curves` holds the series of its first findings, for sparklines."""

    run: RunInfo
    first_step: int | None
    last_step: int | None
    metrics: list[str]
    findings: list[Finding]
    best: BestStep | None
    curves: dict[str, Measured]
    epochs: Callable[[int, int], float | None]

    @property
    def sick(self) -> bool:
        """Whether anything above info was found."""
        return any(one.severity != "info" for one in self.findings)


def diagnose(path: Path, progress: Callable[[int], None] | None = None) -> list[Report]:
    """The reports of a log file's runs; UnreadableLogError where it is no log."""
    with ingested(path, progress=progress) as done:
        return [report(done.store, info, log) for info, log in done.runs]


def report(store: Judged, info: RunInfo, log: RunLog | None = None) -> Report:
    """The report of a stored run that a watcher has judged."""
    spans = store.spans(info.id)
    findings = in_order(store.findings(info.id))
    return Report(
        run=info,
        first_step=log.first_step if log is not None else min((one.first_step for one in spans), default=None),
        last_step=log.last_step if log is not None else max((one.last_step for one in spans), default=None),
        metrics=sorted({one.series.source_key or one.series.metric for one in spans}),
        findings=findings,
        best=best_of_run(store, info.id),
        curves=_curves(store, info.id, spans, findings),
        epochs=_epochs(store, info.id, spans),
    )


def _curves(store: Judged, run: str, spans: list[Span], findings: list[Finding]) -> dict[str, Measured]:
    """The curves of the first findings, by key and attempt."""
    shown = {curve_name(one) for one in findings[:MAX_CURVES]}
    wanted = {one.series: name for one in spans if (name := curve_name(one.series)) in shown}
    return {wanted[one.series]: Measured(*one) for one in store.traces(run, wanted)}


def curve_name(one: Series | Finding) -> str:
    """What a finding's curve goes by in a report."""
    return f"{one.source_key or one.metric}\x1f{one.stream}\x1f{one.attempt}"


def in_order(stored: list[StoredFinding]) -> list[Finding]:
    """The worst first, then the earliest."""
    return sorted(
        (one.finding for one in stored),
        key=lambda one: (-SEVERITIES.index(one.severity), one.attempt, one.start_step, not one.role),
    )


def _epochs(store: Judged, run: str, spans: list[Span]) -> Callable[[int, int], float | None]:
    """Step and attempt to epoch, from the log's own epochs: the epoch of the step, else of the step before it."""
    wanted = {one.series for one in spans if one.series.metric == "epoch" and one.series.stream == "train"}
    of_attempt = {one.series.attempt: one for one in store.traces(run, wanted)}

    def epoch(step: int, attempt: int) -> float | None:
        curve = of_attempt.get(attempt)
        if curve is None:
            return None
        at = bisect.bisect_right(curve.steps, step)
        value = curve.values[max(at - 1, 0)]
        return value if math.isfinite(value) else None

    return epoch


def verdict(one: Report) -> str:
    """The diagnosis in one sentence."""
    if not one.metrics:
        return "no metrics: the log ends before its first step" if one.run.format else "no metrics were logged yet"
    bad = [found for found in one.findings if found.severity != "info"]
    if not bad:
        over = f" over {one.run.rows:,} rows" if one.run.rows else ""  # what was logged live has no rows
        return f"healthy: no problem found in {len(one.metrics)} metric{'s' if len(one.metrics) > 1 else ''}{over}"
    first = min(bad, key=lambda found: (found.attempt, found.start_step, not found.role))
    who = f" of the {first.role}" if first.role else ""
    if len(bad) == 1:
        return f"sick: one {first.severity} finding, {first.kind}{who} at step {first.start_step:,}"
    critical = sum(found.severity == "critical" for found in bad)
    grave = {0: "none of them critical", len(bad): "all critical"}.get(critical, f"{critical} of them critical")
    return f"sick: {len(bad)} findings, {grave}; the earliest is {first.kind}{who} at step {first.start_step:,}"


def as_json(one: Report) -> dict[str, Any]:
    """The report as the public contract's object."""
    return {
        "run": one.run.name,
        "source": one.run.source,
        "format": one.run.format,
        "rows": one.run.rows,
        "first_step": one.first_step,
        "last_step": one.last_step,
        "metrics": one.metrics,
        "findings": [finding_json(found, one.epochs) for found in one.findings],
        "best_checkpoint": None if one.best is None else _plain(_fields(one.best)),
        "warnings": list(one.run.warnings),
    }


def finding_json(found: Finding, epochs: Callable[[int, int], float | None] = lambda _step, _attempt: None) -> dict[str, Any]:
    """A finding as the public contract's object."""
    body = _fields(found)
    body["start_epoch"] = epochs(found.start_step, found.attempt)
    body["end_epoch"] = epochs(found.end_step, found.attempt)
    plain = _plain(body)
    assert isinstance(plain, dict)
    return plain


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _plain(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become their names."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
