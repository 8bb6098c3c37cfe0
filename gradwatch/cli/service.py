"""The collector with its page, ready to be served: one process, one port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from fastapi import FastAPI

from gradwatch.checkpoints.selection import pick_of_run
from gradwatch.cli.stored import opened
from gradwatch.collector.access import Access, check_bind
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.judging import ChildJudge
from gradwatch.collector.server import address, bind
from gradwatch.settings import Settings
from gradwatch_dashboards.app import mount


class Service(NamedTuple):
    """A collector with its page, ready to be served at `url`."""

    url: str
    app: FastAPI
    collector: Collector
    listener: socket.socket


@contextmanager
def service(settings: Settings, host: str, port: int) -> Iterator[Service]:
    """A started collector on the settings' store, its page mounted, its port taken. What it was sent is committed at the end."""
    check_bind(host, settings.api_key)
    with opened(settings.data) as store:
        listener = bind(host, port)
        judge = ChildJudge()
        collector = Collector(store, judge=judge, page=address(listener, host))
        collector.start()
        try:
            app = create_app(collector, Access(host, settings.api_key))
            mount(app, collector, choose=partial(pick_of_run, store))
            listener.listen(2048)
            yield Service(address(listener, host), app, collector, listener)
        finally:
            collector.close()
            judge.close()
            listener.close()
