"""A real collector, real files, and conditions with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradwatch.client.query import Query
from gradwatch.client.transport import Transport
from gradwatch.collector.inprocess import InProcess
from gradwatch.follow.folder import FolderFollower

Points = dict[tuple[str, int], list[tuple[int, float]]]


class Following:
    """Logs in `folder`, followed into a collector."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "logs"
        self.folder.mkdir()
        self.memory = tmp_path / "memory"
        self.collector = InProcess(tmp_path / "data")
        self.follower: FolderFollower | None = None

    @property
    def query(self) -> Query:
        return self.collector.query

    def start(self, path: Path | None = None, transport: Transport | None = None, **more: Any) -> FolderFollower:
        self.follower = FolderFollower(path or self.folder, transport or self.collector, memory=self.memory, **more)
        self.follower.start()
        return self.follower

    def stop(self) -> None:
        if self.follower is not None:
            self.follower.stop()
            self.follower.join(10)
            self.follower = None

    def restart(self, **more: Any) -> FolderFollower:
        self.stop()
        return self.start(**more)

    def run(self, name: str) -> str:
        return next((one.info.id for one in self.query.states() if one.info.name == name), "")

    def points(self, name: str) -> Points:
        """(key, attempt) to steps and values."""
        run = self.run(name)
        curves = self.query.curves(run) if run else []
        return {
            (one.series.source_key or one.series.metric, one.series.attempt): list(zip(one.steps, one.values, strict=True))
            for one in curves
        }

    def written(self, name: str) -> int:
        """Points that were ever committed, doubled ones included."""
        run = self.run(name)
        return self.query.state(run).sequence if run else 0

    def has(self, name: str, key: str, *steps: int, attempt: int = 1) -> None:
        """Wait until a series has just these steps."""

        def come() -> bool:
            return [step for step, _ in self.points(name).get((key, attempt), [])] == list(steps)

        self.until(come, lambda: f"{self.points(name)} {self.statuses()}")

    def statuses(self) -> list[Any]:
        return [] if self.follower is None else list(self.follower.statuses())

    def until(self, condition: Callable[[], bool], explain: Callable[[], object] = lambda: "", seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, explain() or self.statuses()
            time.sleep(0.01)

    def state(self, name: str) -> str:
        return next((one.state for one in self.statuses() if one.path.name == name), "")


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    one = Following(tmp_path)
    yield one
    one.stop()
    one.collector.close()
