"""Interleaved rounds of measurements, their medians, and the verdict that a benchmark ends with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import median
from typing import NamedTuple


class Target(NamedTuple):
    """A result that must be at least `least`, or at most `most`."""

    name: str
    least: float | None = None
    most: float | None = None

    def is_met(self, measured: float) -> bool:
        return (self.least is None or measured >= self.least) and (self.most is None or measured <= self.most)


def medians(rounds: int, measurements: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each measurement. Every round takes each once, so that a slow minute of the machine hits all alike."""
    seen: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            seen[name].append(measure())
    return {name: median(values) for name, values in seen.items()}


class Interval(NamedTuple):
    """A median, and where it lies with 95 % confidence."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float], draws: int = 2000) -> Interval:
    """The median with a bootstrap interval, the same each time."""
    dice = Random(0)
    medians_drawn = sorted(median(dice.choices(values, k=len(values))) for _ in range(draws))
    return Interval(median(values), medians_drawn[int(0.025 * draws)], medians_drawn[int(0.975 * draws)])


def cpu_seconds(work: Callable[[], object]) -> float:
    """The processor time of this process that `work` takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def wall_seconds(work: Callable[[], object]) -> float:
    """The time that passes while `work` runs, waiting for the disk included."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def table(rows: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    """Named rows as text; a row without a column has a dash there."""
    wide = max(map(len, rows), default=0)
    lines = [" " * wide + "".join(f"  {column:>{max(len(column), 9)}}" for column in columns)]
    for name, row in rows.items():
        cells = (f"{row[one]:,.3g}" if row.get(one, 1e9) < 1000 else f"{row[one]:,.0f}" if one in row else "-" for one in columns)
        lines.append(f"{name:<{wide}}" + "".join(f"  {cell:>{max(len(one), 9)}}" for cell, one in zip(cells, columns, strict=True)))
    return "\n".join(lines)


def conclude(benchmark: str, results: Mapping[str, object], measured: Mapping[str, float], targets: Sequence[Target]) -> int:
    """Print each target's verdict and, as the last line, everything as JSON; return the exit code."""
    judged = {one.name: one.is_met(measured[one.name]) for one in targets}
    for one in targets:
        bound = f"at least {one.least:,g}" if one.least is not None else f"at most {one.most:,g}"
        print(f"{'met   ' if judged[one.name] else 'MISSED'}  {one.name}: {measured[one.name]:,.4g}, {bound}")
    told = {
        one.name: {"least": one.least, "most": one.most, "measured": measured[one.name], "met": judged[one.name]} for one in targets
    }
    met = all(judged.values())
    print(json.dumps({"benchmark": benchmark, "results": results, "targets": told, "met": met}))
    return 0 if met else 1
