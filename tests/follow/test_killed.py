"""The command itself, killed while a training writes: nothing lost, nothing doubled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from gradwatch.collector.access import Access
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.store import open_store

KILLS = 3


def write(path: Path, done: threading.Event, written: list[int]) -> None:
    with path.open("w") as log:
        while not done.wait(0.005):
            log.write(f'{{"step": {len(written)}, "loss": 0.5, "reward": NaN}}\n')
            log.flush()
            written.append(len(written))


def test_a_follower_that_is_killed_again_and_again_brings_every_point_once(following: Any, tmp_path: Path) -> None:
    store = open_store(tmp_path / "served")
    collector = Collector(store)
    collector.start()
    done, written = threading.Event(), list[int]()
    writer = threading.Thread(target=write, args=(following.folder / "run.jsonl", done, written))

    def points() -> int:
        return sum(one.sequence for one in collector.states())

    with running(create_app(collector, Access("127.0.0.1", ""))) as url:
        environment = {**os.environ, "GRADWATCH_URL": url, "GRADWATCH_DIR": str(following.memory)}
        command = [sys.executable, "-m", "gradwatch", "follow", str(following.folder)]
        writer.start()
        for life in range(KILLS + 1):
            before = points()
            with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
                following.until(lambda before=before: points() > before + 100, seconds=30.0)
                if life < KILLS:
                    process.kill()
                    continue
                done.set()
                writer.join()
                following.until(lambda: points() >= 2 * len(written))
                process.terminate()
                assert process.wait(20) == 0
    (state,) = collector.states()
    assert points() == 2 * len(written)
    assert {tuple(one.steps) for one in collector.curves(state.info.id)} == {tuple(written)}
    assert state.attempt == 1
    collector.close()
    store.close()
