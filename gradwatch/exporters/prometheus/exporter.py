"""The exporter: a collector of `prometheus_client` on a registry of its own, read at scrape time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Lock

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from gradwatch.exporters.prometheus.families import run_families
from gradwatch.exporters.prometheus.findings import Labels, counted, finding_families
from gradwatch.exporters.prometheus.reading import Newest, Reading, calls, is_active
from gradwatch.exporters.prometheus.source import Source
from gradwatch.exporters.prometheus.vitals import vital_families
from gradwatch.schema import RunState, StoredFinding

_Seen = tuple[int, int]


class PrometheusExporter:
    """Answers scrapes of one collector.

    `page` is the address of its page, for the links in alerts; `clock` gives Unix seconds. A scrape of many runs takes a while
    (100 ms at 10,000 series): call it on a thread, off the event loop.
    """

    def __init__(self, source: Source, page: str = "", clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._page = page.rstrip("/")
        self._clock = clock
        self._scraping = Lock()
        self._known: dict[str, tuple[_Seen, Newest]] = {}
        self._totals: dict[str, dict[Labels, int]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The body and content type of an answer to a request with this Accept header: OpenMetrics or Prometheus text."""
        encode, content_type = choose_encoder(accept)
        with self._scraping:
            return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """The families as they stand now."""
        now = self._clock()
        readings = [self._read(state) for state in self._source.states() if is_active(state, now)]
        active = {one.state.info.id for one in readings}
        self._known = {run: known for run, known in self._known.items() if run in active}
        self._totals = {one.state.info.id: self._total(one) for one in readings}
        yield from run_families(readings, self._page)
        totals = {labels: count for run in self._totals.values() for labels, count in run.items()}
        yield from finding_families([(one, self._active(one, now)) for one in readings], totals)
        yield from vital_families(self._source.vitals())

    def _read(self, state: RunState) -> Reading:
        run = state.info.id
        return Reading.of(state, self._newest(state), self._source.findings(run), self._source.nonfinite(run))

    def _newest(self, state: RunState) -> Newest:
        # As long as nothing was committed no curve has changed, and a scrape costs the store nothing.
        seen = (state.attempt, state.sequence)
        known = self._known.get(state.info.id)
        if known is None or known[0] != seen:
            known = self._known[state.info.id] = (seen, Newest.of(self._source.latest(state.info.id, state.attempt)))
        return known[1]

    def _active(self, reading: Reading, now: float) -> list[StoredFinding]:
        return [one for one in reading.findings if calls(one, reading.state.attempt, now)]

    def _total(self, reading: Reading) -> dict[Labels, int]:
        # A finding that becomes graver changes its labels; a counter must not fall for it.
        before = self._totals.get(reading.state.info.id, {})
        now = counted(reading)
        return {labels: max(now[labels], before.get(labels, 0)) for labels in dict.fromkeys((*before, *now))}
