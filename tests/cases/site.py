"""A real collector on a store in a folder, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore


class Site:
    """A collector at `url`; what it keeps is in `store`."""

    def __init__(self, url: str, collector: Collector, store: LocalStore) -> None:
        self.url, self.collector, self.store = url, collector, store

    def curve(self, run: str, key: str, attempt: int = 1) -> dict[int, float]:
        """The last write of every step of a key."""
        curves = [one for one in self.store.curves(run) if (one.series.source_key, one.series.attempt) == (key, attempt)]
        return {step: value for one in curves for step, value in zip(one.steps, one.values, strict=True)}


@contextmanager
def serving(data: Path, **about: int) -> Iterator[Site]:
    store = open_store(data)
    collector = Collector(store, **about)
    collector.start()
    try:
        with running(create_app(collector)) as url:
            yield Site(url, collector, store)
    finally:
        collector.close()
        store.close()
