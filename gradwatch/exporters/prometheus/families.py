"""The metric families of the exported runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from gradwatch.exporters.prometheus.gauges import GAUGES
from gradwatch.exporters.prometheus.reading import Reading

RUN = ("project", "run")
ROLE = (*RUN, "role")


def run_families(readings: Sequence[Reading], page: str) -> Iterator[Metric]:
    """Who the runs are, how far they got, and what each role logged last. `page` is the address of the page."""
    yield _info(readings, page)
    for gauge in GAUGES:
        yield _gauge(gauge.name, gauge.meaning, [(one, one.newest.gauges.get(gauge.name, {})) for one in readings])
    yield _gauge("gradwatch_step", "Last step, of a role or of the run", [(one, one.steps) for one in readings])
    meaning = "Last commit by the collector's clock (of the run), last value by the clock of the machine that logged it (of a role)"
    yield _gauge("gradwatch_last_update_timestamp_seconds", meaning, [(one, one.updates) for one in readings])
    yield _nonfinite(readings)


def _info(readings: Sequence[Reading], page: str) -> Metric:
    family = InfoMetricFamily("gradwatch_run", "A run that is running, or ended a short while ago", labels=RUN)
    for one in readings:
        run = one.state.info
        address = f"{page}/runs/{quote(run.id, safe='')}" if page else ""
        family.add_metric(one.labels, {"name": run.name, "status": one.state.status, "page": address})
    return family


def _gauge(name: str, meaning: str, values: Sequence[tuple[Reading, Mapping[str, float]]]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=ROLE)
    for reading, by_role in values:
        for role in reading.roles:
            if role in by_role:
                family.add_metric((*reading.labels, role), by_role[role])
    return family


def _nonfinite(readings: Sequence[Reading]) -> Metric:
    family = CounterMetricFamily("gradwatch_nonfinite", "NaN and infinite values since the collector started", labels=ROLE)
    for one in readings:
        counts = Counter(dict.fromkeys(one.roles, 0))
        for role, count in one.nonfinite.items():
            counts[one.listed(role)] += count
        for role, count in counts.items():
            family.add_metric((*one.labels, role), count)
    return family
