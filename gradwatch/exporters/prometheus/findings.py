"""The metric families of findings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gradwatch.exporters.prometheus.families import ROLE
from gradwatch.exporters.prometheus.reading import Reading
from gradwatch.schema import StoredFinding

KIND = (*ROLE, "kind", "severity")
STARTED = (*KIND, "metric")

Labels = tuple[str, ...]
Active = tuple[Reading, list[StoredFinding]]
"""A run and those of its findings that are active."""


def counted(reading: Reading) -> Counter[Labels]:
    """The run's findings of all attempts, by the labels of KIND."""
    return Counter(_labels(reading, reading.findings))


def finding_families(active: Sequence[Active], totals: Mapping[Labels, int]) -> Iterator[Metric]:
    """Active findings, all findings so far (`totals`, by the labels of KIND), and the steps at which the active ones began."""
    yield _active(active, totals)
    total = CounterMetricFamily("gradwatch_findings", "Findings so far", labels=KIND)
    for labels, count in totals.items():
        total.add_metric(labels, count)
    yield total
    yield _started(active)


def _active(active: Sequence[Active], totals: Mapping[Labels, int]) -> Metric:
    family = GaugeMetricFamily("gradwatch_findings_active", "Findings that are new, or whose trouble goes on", labels=KIND)
    counts = Counter(dict.fromkeys(totals, 0))
    for reading, findings in active:
        counts.update(_labels(reading, findings))
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


def _started(active: Sequence[Active]) -> Metric:
    meaning = "Step at which an active finding began, the first of those that share the labels"
    family = GaugeMetricFamily("gradwatch_finding_start_step", meaning, labels=STARTED)
    first: dict[Labels, int] = {}
    for reading, findings in active:
        for labels, stored in zip(_labels(reading, findings), findings, strict=True):
            full = (*labels, stored.finding.metric)
            first[full] = min(stored.finding.start_step, first.get(full, stored.finding.start_step))
    for labels, step in first.items():
        family.add_metric(labels, step)
    return family


def _labels(reading: Reading, findings: Sequence[StoredFinding]) -> Iterator[Labels]:
    for one in (stored.finding for stored in findings):
        yield (*reading.labels, reading.listed(one.role), one.kind, one.severity)
