"""The metric families of the collector itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from gradwatch.exporters.prometheus.source import Vitals

PREFIX = "gradwatch_collector_"


def vital_families(vitals: Vitals) -> Iterator[Metric]:
    """The collector's own figures."""
    yield _gauge("start_time_seconds", "When the collector started", vitals.started)
    yield _counter("points", "Points committed", vitals.points_total)
    yield _counter("batches", "Batches committed", vitals.batches_total)
    yield _counter("duplicate_batches", "Batches that were committed before and added nothing", vitals.duplicate_batches_total)
    yield _counters("refused_requests", "Requests refused", "reason", vitals.refused_requests_total)
    meaning = "Commits to the store: how many, and how long they took"
    yield SummaryMetricFamily(f"{PREFIX}commit_seconds", meaning, vitals.commits_total, vitals.commit_seconds_total)
    yield _gauge("queue_points", "Points received that wait for their commit", vitals.queue_points)
    yield _gauge("queue_bytes", "Bytes received that wait for their commit", vitals.queue_bytes)
    yield _gauge("queue_limit_bytes", "Bytes at which requests are answered 429", vitals.queue_limit_bytes)
    yield _gauge("watch_lag_points", "Points committed that no detector has judged yet", vitals.watch_lag_points)
    yield _gauge("watch_lag_seconds", "How long the oldest of them has waited", vitals.watch_lag_seconds)
    yield _counters("errors", "Errors inside the collector", "kind", vitals.errors_total)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, meaning, value)


def _counters(name: str, meaning: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family
