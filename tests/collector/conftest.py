"""A real store in a folder, a collector on it, and its server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch.wire import OpenRun


class Served(NamedTuple):
    """A collector with an open run `r`, its process `p`, and a client of its server."""

    collector: Collector
    http: httpx.Client
    url: str


@contextmanager
def serving(data: Path) -> Iterator[Served]:
    store = open_store(data)
    collector = Collector(store)
    collector.start()
    collector.open(OpenRun(id="r", process="p", launch="first"))
    with running(create_app(collector)) as url, httpx.Client(base_url=url, timeout=20.0) as client:
        yield Served(collector, client, url)
    collector.close()
    store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests of a file that do not get in each other's way."""
    with serving(tmp_path_factory.mktemp("shared")) as one:
        yield one


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """One for a test alone."""
    with serving(tmp_path / "data") as one:
        yield one


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    opened = open_store(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def collector(store: LocalStore) -> Iterator[Collector]:
    started = Collector(store)
    started.start()
    yield started
    started.close()


@pytest.fixture
def run(collector: Collector) -> str:
    """An open run, its process `p`."""
    return collector.open(OpenRun(id="r", process="p", launch="first")).run
