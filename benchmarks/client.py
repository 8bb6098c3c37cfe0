"""What logging costs a training loop: 200 metrics at 10 steps a second, and a loop whose collector goes away.

Per logger: the calling thread's processor time of one log call in microseconds, less the time that reading the clock takes (the
row `nothing`). The loggers take turns in one loop, each after a pause, so that it finds its code as cold as training leaves it.
Then a loop of plain work logs on while its collector is there, is killed, and comes back: the ratio of its step times, and how
many of its values were lost. Trackio and wandb (offline) are measured where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.rounds import Target, conclude, table

import gradwatch
from gradwatch.store import open_store

METRICS = 200
PERIOD = 0.1
WARM_UP = 5
COLUMNS = ("median µs", "p99 µs", "worst µs")
TARGETS = (
    Target("gradwatch http median µs", most=50),
    Target("gradwatch offline median µs", most=50),
    Target("step time, collector away ÷ present", most=1.1),
    Target("values lost", most=0),
)
Log = Callable[[dict[str, float], int], object]


class Effort(NamedTuple):
    """How many steps are logged, and for how many seconds the collector is there, away, and there again."""

    steps: int
    phase: float


QUICK, FULL = Effort(120, 5.0), Effort(600, 30.0)


class Collector:
    """A real collector in a process of its own, which can be killed and started again at its address."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = "0"
        self.url = self.start()

    def start(self) -> str:
        command = [sys.executable, "-m", "gradwatch.collector", "--data", str(self._data), "--port", self._port]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        url = self._process.stdout.readline().split()[-1]
        self._port = url.rpartition(":")[2]
        return url

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate()


def log_nothing(metrics: dict[str, float], step: int) -> None:
    """What the measurement itself costs."""


@contextmanager
def gradwatch_log(mode: str, url: str, folder: Path) -> Iterator[Log]:
    run = gradwatch.init(name=mode, mode=mode, url=url, dir=folder / "spool", quiet=True)
    yield lambda metrics, step: run.log(metrics, step=step)
    run.finish()


@contextmanager
def trackio_log(folder: Path) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    trackio = __import__("trackio")
    trackio.init(project="bench", embed=False)
    yield lambda metrics, step: trackio.log(metrics, step=step)
    trackio.finish()


@contextmanager
def wandb_log(folder: Path) -> Iterator[Log]:
    wandb = __import__("wandb")
    run = wandb.init(project="bench", mode="offline", dir=str(folder), settings=wandb.Settings(silent=True))
    yield lambda metrics, step: run.log(metrics, step=step)
    run.finish()


def measure_calls(steps: int, loggers: dict[str, Log]) -> dict[str, list[float]]:
    """Microseconds of processor time of the calling thread, per logger and step."""
    metrics = {f"group{number % 10}/metric_{number}": float(number) for number in range(METRICS)}
    seen: dict[str, list[float]] = {name: [] for name in loggers}
    names = list(loggers)
    for step in range(steps):
        names.append(names.pop(0))
        for name in names:
            time.sleep(PERIOD / len(names))
            metrics = {key: value + 0.1 for key, value in metrics.items()}
            before = time.thread_time_ns()
            loggers[name](metrics, step)
            seen[name].append((time.thread_time_ns() - before) / 1e3)
    return {name: sorted(costs[WARM_UP:]) for name, costs in seen.items()}


def summarise(seen: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    clock = median(seen["nothing"])
    rows = {}
    for name, costs in seen.items():
        less = 0.0 if name == "nothing" else clock
        figures = (median(costs), costs[int(len(costs) * 0.99)], costs[-1])
        rows[name] = {column: max(figure - less, 0.0) for column, figure in zip(COLUMNS, figures, strict=True)}
    return rows


def work() -> int:
    """One step of a loop that does something else: some milliseconds of plain Python."""
    return sum(number * number % 7 for number in range(30_000))


def step_times(run: gradwatch.Run, first: int, seconds: float) -> list[float]:
    """The wall time of each step of a loop that logs from step `first` on, for so many seconds."""
    times, begun = [], time.perf_counter()
    metrics = {f"metric_{number}": float(number) for number in range(METRICS)}
    while (now := time.perf_counter()) - begun < seconds:
        work()
        run.log(metrics, step=first + len(times))
        times.append(time.perf_counter() - now)
    return times


def measure_absence(phase: float, folder: Path) -> dict[str, float]:
    """The median step times while a collector is there, away and back again, and what was lost in the end."""
    collector = Collector(folder / "data")
    run = gradwatch.init(id="loop", url=collector.url, dir=folder / "away", quiet=True)
    before = step_times(run, 0, phase)
    collector.kill()
    away = step_times(run, len(before), phase)
    collector.start()
    after = step_times(run, len(before) + len(away), phase)
    run.flush(60)
    run.finish()
    collector.stop()
    store = open_store(folder / "data")
    stored = sum(len(block) for _, block in store.replay("loop"))
    store.close()
    present = median([*before, *after])
    steps = len(before) + len(away) + len(after)
    return {
        "present ms": present * 1e3,
        "away ms": median(away) * 1e3,
        "ratio": median(away) / present,
        "steps": float(steps),
        "lost": float(METRICS * steps - stored),
    }


def run(effort: Effort) -> int:
    """Measure everything, print it, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        collector = Collector(folder / "collector")
        stack.callback(collector.stop)
        loggers: dict[str, Log] = {"nothing": log_nothing}
        loggers["gradwatch http"] = stack.enter_context(gradwatch_log("online", collector.url, folder))
        loggers["gradwatch offline"] = stack.enter_context(gradwatch_log("offline", collector.url, folder))
        for peer, log in (("trackio", trackio_log), ("wandb", wandb_log)):
            if importlib.util.find_spec(peer) is None:
                print(f"{peer}: not installed")
            else:
                loggers[peer] = stack.enter_context(log(folder))
        rows = summarise(measure_calls(effort.steps, loggers))
    with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as name:
        absence = measure_absence(effort.phase, Path(name))
    print(table(rows, COLUMNS))
    print(f"\na step of {absence['present ms']:.2f} ms with the collector there, {absence['away ms']:.2f} ms with it away\n")
    measured = {f"{name} median µs": rows[name]["median µs"] for name in ("gradwatch http", "gradwatch offline")}
    measured["step time, collector away ÷ present"] = absence["ratio"]
    measured["values lost"] = absence["lost"]
    return conclude("client", {"calls": rows, "absence": absence}, measured, TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps and a shorter absence, within a minute")
    return run(QUICK if parser.parse_args().quick else FULL)


if __name__ == "__main__":
    sys.exit(main())
