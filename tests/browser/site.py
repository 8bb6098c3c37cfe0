"""A collector with its pages, served on a thread."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property, partial
from types import TracebackType
from urllib.parse import urlsplit

from browser.scenario import Trainer, block, checkpoints, samples

from gradwatch.checkpoints.selection import pick_of_run
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.store import open_store
from gradwatch_dashboards.app import mount


class Site:
    """The collector at `url`; it can be taken away and brought back at the same address."""

    def __init__(self) -> None:
        self._store = open_store(None)
        self.collector = Collector(self._store)
        self._serving = ExitStack()
        self._trainers = ExitStack()
        self.url = ""

    def __enter__(self) -> Site:
        self.collector.start()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._trainers.close()
        self.stop()
        self.collector.close()
        self._store.close()

    def start(self) -> None:
        app = create_app(self.collector)
        mount(app, self.collector, partial(pick_of_run, self._store))
        self.url = self._serving.enter_context(running(app, port=urlsplit(self.url).port or 0))

    def stop(self) -> None:
        self._serving.close()

    @cached_property
    def sick(self) -> Trainer:
        """A running run of 260 steps, whose searcher broke."""
        return self.trained("sick", range(260))

    def trainer(self, run: str, name: str = "") -> Trainer:
        """A training process of a run; its connection is released at the end."""
        one = Trainer(self.url, run, name)
        self._trainers.callback(one.close)
        return one

    def trained(self, run: str, steps: range) -> Trainer:
        """One that has logged some steps."""
        trainer = self.trainer(run, f"{run} run")
        some = range(0, steps[-1], 20)
        trainer.log(block(steps), samples(some), checkpoints(steps))
        return trainer
