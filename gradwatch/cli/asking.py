"""Where the reading commands read: the collector that runs, else the store in the data folder."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from gradwatch.cli.stored import existing
from gradwatch.client.http import Http
from gradwatch.client.http_query import HttpQuery
from gradwatch.client.query import Query
from gradwatch.errors import GradwatchError, NoStoreError, RefusedError, UnavailableError
from gradwatch.schema import Block, RunState, Series, Trace
from gradwatch.settings import load_settings


class Asked(Query, Protocol):
    """What a command asks: a `Query` that also hands out curves one by one, and every point."""

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series, one by one."""

    def replay(self, run: str) -> Iterator[tuple[int, Block]]:
        """The run's points in sequence order, rewrites included."""


@contextmanager
def asked(data: Path | None) -> Iterator[Asked]:
    """The store in `data` where it is named, else the collector at GRADWATCH_URL where one runs, else the default store."""
    settings = load_settings()
    if data is None and collector_runs(settings.url):
        with HttpQuery(settings.url, settings.api_key) as query:
            yield query
        return
    folder = settings.data if data is None else data
    try:
        with existing(folder) as store:
            yield store
    except NoStoreError as error:
        if data is None:
            raise NoStoreError(f"no collector answers at {settings.url}, and {error}") from error
        raise


def collector_runs(url: str) -> bool:
    """Whether a collector answers there."""
    try:
        with Http(url, timeout=2.0) as http:
            http.request("GET", "/healthz")
    except (UnavailableError, RefusedError):
        return False
    return True


def find_run(query: Query, wanted: str) -> RunState:
    """The run with that id, else the newest of that name."""
    states = query.states()
    named = [one for one in states if one.info.name == wanted]
    for one in [*(one for one in states if one.info.id == wanted), *named]:
        return one
    known = ", ".join(sorted({one.info.name for one in states})[:8])
    raise GradwatchError(f"no run {wanted!r} in the store; it has {known or 'no runs yet'} (list them with `gradwatch runs`)")
