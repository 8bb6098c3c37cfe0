"""How many points a second a collector makes durable over HTTP, sent by 8 connections that each wait for their acks.

By form of the body (msgpack columns, JSON steps) and points a request, 200 series in each; without detectors, with detectors and
metrics that only the check for non-finite values reads, and with metrics that all detectors read. `lag s` is how long the detectors
then take to have judged everything. The detectors run in a process of their own, which on a machine of two cores shares one with
the load generator.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import msgspec
from harness.load import Load
from harness.rounds import Target, conclude, medians, table

from gradwatch.wire import JSON, MSGPACK

CONNECTIONS = 8
PLAIN = ["my/own", "timing_s/gen", "perf/throughput", "another/one"]
WATCHED = ["grad_norm", "loss", "reward", "entropy"]
FORMS = {"msgpack": MSGPACK, "JSON": JSON}
SIZES = (200, 1_000, 10_000)
COLUMNS = ("points/s, no detectors", "plain metrics", "watched metrics", "lag s")
TARGETS = (
    Target("msgpack, 1,000 a request, points/s", least=500_000),
    Target("msgpack, 1,000 a request, with detectors, points/s", least=500_000),
)
QUIET_SECONDS = 120.0


class Effort(NamedTuple):
    """Rounds, and how many requests of each size one measurement takes."""

    rounds: int
    requests: dict[int, int]


QUICK, FULL = Effort(2, {200: 100, 1_000: 400, 10_000: 20}), Effort(5, {200: 1_500, 1_000: 1_500, 10_000: 300})


class Collector(NamedTuple):
    """A collector in a process of its own, and a load generator in another."""

    url: str
    generator: subprocess.Popen[str]
    runs: Iterator[int]

    def rate(self, load: Load) -> float:
        """Points a second of a new run."""
        assert self.generator.stdin is not None
        assert self.generator.stdout is not None
        load = msgspec.structs.replace(load, run=f"run-{next(self.runs)}")
        self.generator.stdin.write(msgspec.json.encode(load).decode() + "\n")
        self.generator.stdin.flush()
        answer = self.generator.stdout.readline()
        if not answer:
            raise RuntimeError("the load generator has failed: see what it printed")
        return load.points * load.requests / float(msgspec.json.decode(answer)["seconds"])

    def catch_up(self) -> float:
        """Wait until everything is judged; the seconds that took."""
        begun = time.monotonic()
        while self.lag():
            if time.monotonic() - begun > QUIET_SECONDS:
                raise RuntimeError(f"the detectors have not caught up after {QUIET_SECONDS:g} s")
            time.sleep(0.02)
        return time.monotonic() - begun

    def lag(self) -> float:
        found = re.search(r"^gradwatch_collector_watch_lag_points (\S+)", httpx.get(f"{self.url}/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextmanager
def collector(data: Path, *options: str) -> Iterator[Collector]:
    command = [sys.executable, "-m", "gradwatch.collector", "--data", str(data), "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]
    load = [sys.executable, "-m", "harness.load", url, str(CONNECTIONS)]
    generator = subprocess.Popen(load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    try:
        yield Collector(url, generator, itertools.count())
    finally:
        for process in (generator, server):
            process.terminate()
            process.wait(60)


def measure(effort: Effort, alone: Collector, watching: Collector) -> dict[str, dict[str, float]]:
    """The results by form and size; every round takes each combination once."""
    lags: dict[str, list[float]] = {}

    def watched(name: str, load: Load) -> float:
        rate = watching.rate(load)
        lags.setdefault(name, []).append(watching.catch_up())
        return rate

    def plain(load: Load) -> float:
        rate = watching.rate(load)
        watching.catch_up()
        return rate

    work: dict[tuple[str, str], Callable[[], float]] = {}
    for (form, kind), size in itertools.product(FORMS.items(), SIZES):
        name, requests = f"{form}, {size:,} a request", effort.requests[size]
        some, all_watched = (Load("", kind, metrics, size, requests) for metrics in (PLAIN, WATCHED))
        work[name, COLUMNS[0]] = lambda load=some: alone.rate(load)
        work[name, COLUMNS[1]] = lambda load=some: plain(load)
        work[name, COLUMNS[2]] = lambda name=name, load=all_watched: watched(name, load)
    results: dict[str, dict[str, float]] = {}
    for (name, column), rate in _medians(effort.rounds, work).items():
        results.setdefault(name, {})[column] = rate
    return {name: one | {"lag s": median(lags[name])} for name, one in results.items()}


def _medians(rounds: int, work: dict[tuple[str, str], Callable[[], float]]) -> dict[tuple[str, str], float]:
    flat = medians(rounds, {"\x1f".join(key): measure for key, measure in work.items()})
    return {(key.split("\x1f")[0], key.split("\x1f")[1]): value for key, value in flat.items()}


def run(effort: Effort) -> int:
    """Measure everything, print it, and return the exit code."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradwatch-bench-")))
        alone = stack.enter_context(collector(folder / "alone", "--no-watcher"))
        watching = stack.enter_context(collector(folder / "watching"))
        results = measure(effort, alone, watching)
    print(table(results, COLUMNS))
    print()
    judged = results["msgpack, 1,000 a request"]
    measured = {TARGETS[0].name: judged[COLUMNS[0]], TARGETS[1].name: min(judged[COLUMNS[1]], judged[COLUMNS[2]])}
    return conclude("ingest", results, measured, TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer requests and rounds, within a minute")
    return run(QUICK if parser.parse_args().quick else FULL)


if __name__ == "__main__":
    sys.exit(main())
