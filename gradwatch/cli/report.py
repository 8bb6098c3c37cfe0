"""What `diagnose` says of one run, as data; text and JSON are made from it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gradwatch.checkpoints.selection import Measured, best_step
from gradwatch.cli.ingest import ingested
from gradwatch.importers.blocks import RunLog
from gradwatch.schema import BestStep, Finding, RunInfo, StoredFinding
from gradwatch.store.base import Curve, Store

SEVERITY_ORDER = {"critical": 0, "warning": 1, "info": 2}


class Report(NamedTuple):
    """One run's diagnosis. `curves` holds the series of the findings and of the best step, for sparklines."""

    run: RunInfo
    first_step: int | None
    last_step: int | None
    metrics: list[str]
    findings: list[Finding]
    best: BestStep | None
    curves: dict[str, Curve]
    epochs: Callable[[int, int], float | None]

    @property
    def sick(self) -> bool:
        """Whether anything above info was found."""
        return any(one.severity != "info" for one in self.findings)


def diagnose(path: Path, progress: Callable[[int], None] | None = None) -> list[Report]:
    """The reports of a log file's runs; UnreadableLogError where it is no log."""
    with ingested(path, progress=progress) as done:
        return [report(done.store, info, log) for info, log in done.runs]


def report(store: Store, info: RunInfo, log: RunLog | None = None) -> Report:
    """The report of a stored run that a watcher has judged."""
    curves = store.curves(info.id)
    steps = [step for curve in curves for step in (curve.steps[0], curve.steps[-1])]
    first = log.first_step if log is not None else min(steps, default=None)
    last = log.last_step if log is not None else max(steps, default=None)
    return Report(
        run=info,
        first_step=first,
        last_step=last,
        metrics=sorted({curve.series.source_key or curve.series.metric for curve in curves}),
        findings=in_order(store.findings(info.id)),
        best=best_step(Measured(curve.series, curve.steps, curve.values) for curve in curves),
        curves={f"{one.series.source_key or one.series.metric}\x1f{one.series.attempt}": one for one in curves},
        epochs=_epochs(curves),
    )


def in_order(stored: list[StoredFinding]) -> list[Finding]:
    """The worst first, then the earliest."""
    return sorted((one.finding for one in stored), key=lambda one: (SEVERITY_ORDER[one.severity], one.attempt, one.start_step))


def _epochs(curves: list[Curve]) -> Callable[[int, int], float | None]:
    """Step and attempt to epoch, from the log's own epochs: the epoch of the step, else of the step before it."""
    of_attempt = {one.series.attempt: one for one in curves if one.series.metric == "epoch"}

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
        return "no metrics: the log ends before its first step"
    worst = [found for found in one.findings if found.severity != "info"]
    if not worst:
        return f"healthy: nothing above info in {len(one.metrics)} metrics over {one.run.rows:,} rows"
    counts = [(name, sum(found.severity == name for found in worst)) for name in ("critical", "warning")]
    said = " and ".join(f"{count} {name}" for name, count in counts if count)
    first = min(worst, key=lambda found: (found.attempt, found.start_step))
    earliest = "" if len(worst) == 1 else "; the earliest is "
    lead = f": {worst[0].kind} since step {worst[0].start_step}" if len(worst) == 1 else ""
    return f"sick: {said} finding{'s' if len(worst) > 1 else ''}{lead}" + (
        f"{earliest}{first.kind} at step {first.start_step}" if earliest else ""
    )


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
