"""How fast logs are read, stored and diagnosed, against plain Python over the same file, and how much memory that takes.

Per format: megabytes of log a second of processor time into blocks; points a second of wall time into a store on disk, durable;
megabytes a second of wall time through the whole of `diagnose`. A ratio is our processor time to that of plain line iteration,
`json.loads` of each line, or the csv module alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.logs import KINDS, write_log
from harness.rounds import Target, conclude, cpu_seconds, medians, table, wall_seconds

from gradwatch.cli.report import diagnose
from gradwatch.importers.reader import LogFile
from gradwatch.schema import Block, RunInfo
from gradwatch.store import open_store

MB = 1e6
COLUMNS = (
    "MB",
    "points",
    "read MB/s",
    "read points/s",
    "store points/s",
    "diagnose MB/s",
    "× lines",
    "× json.loads",
    "× csv",
)
TARGETS = (
    Target("trl_console read MB/s", least=20),
    Target("verl_console read MB/s", least=20),
    Target("slowest store points/s", least=1e5),
    Target("peak memory of diagnose, MB", most=300),
)
DIAGNOSE = "from gradwatch.cli import main; main()"
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


class Effort(NamedTuple):
    """How much is measured."""

    rounds: int
    size: int
    large: int


QUICK, FULL = Effort(3, 2_000_000, 60_000_000), Effort(5, 16_000_000, 500_000_000)


def read_blocks(path: Path) -> list[Block]:
    return [block for _, block in LogFile(path).blocks()]


def store_blocks(blocks: list[Block]) -> float:
    """Seconds to append the blocks, each in a durable transaction, to a store on disk."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        store.put_run(RunInfo("r", "r"))
        seconds = wall_seconds(lambda: [store.append("r", block) for block in blocks])
        store.close()
    return seconds


def iterate_lines(path: Path) -> None:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for _ in lines:
            pass


def load_lines(path: Path) -> None:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            json.loads(line)


def parse_csv(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as lines:
        for _ in csv.reader(lines):
            pass


def measure(path: Path, rounds: int) -> dict[str, float]:
    """The results of one file."""
    blocks = read_blocks(path)
    megabytes, points = path.stat().st_size / MB, sum(map(len, blocks))
    work: dict[str, Callable[[], float]] = {
        "read": lambda: cpu_seconds(lambda: read_blocks(path)),
        "store": lambda: store_blocks(blocks),
        "diagnose": lambda: wall_seconds(lambda: diagnose(path)),
        "× lines": lambda: cpu_seconds(lambda: iterate_lines(path)),
    }
    if path.suffix == ".jsonl":
        work["× json.loads"] = lambda: cpu_seconds(lambda: load_lines(path))
    if path.suffix == ".csv":
        work["× csv"] = lambda: cpu_seconds(lambda: parse_csv(path))
    seconds = medians(rounds, work)
    result = {
        "MB": megabytes,
        "points": float(points),
        "read MB/s": megabytes / seconds["read"],
        "read points/s": points / seconds["read"],
        "diagnose MB/s": megabytes / seconds["diagnose"],
    }
    if points:
        result["store points/s"] = points / seconds["store"]
    return result | {name: seconds["read"] / one for name, one in seconds.items() if name.startswith("×")}


def peak_memory(path: Path) -> float:
    """The peak resident memory, in MB, of a process that diagnoses the file."""
    command = [sys.executable, "-c", DIAGNOSE, "diagnose", "--format", "json", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"diagnose of {path} ended with {process.returncode}")
    return usage.ru_maxrss * 1024 / MB


def generated(effort: Effort, folder: Path) -> dict[str, dict[str, float]]:
    return {name: measure(write_log(folder, kind, effort.size), effort.rounds) for name, kind in KINDS.items()}


def real(corpus: Path, rounds: int) -> dict[str, dict[str, float]]:
    return {path.name: measure(path, rounds) for path in sorted((corpus / "files").glob("console*.log"))}


def memory(size: int, folder: Path) -> dict[str, float]:
    """The peak memory and the speed of a process that diagnoses a console log of this size."""
    path = write_log(folder, KINDS["trl_console"]._replace(file="large.log"), size)
    peaks: list[float] = []
    seconds = wall_seconds(lambda: peaks.append(peak_memory(path)))
    megabytes = path.stat().st_size / MB
    path.unlink()
    return {"MB": megabytes, "peak MB": peaks[0], "seconds": seconds, "diagnose MB/s": megabytes / seconds}


def run(effort: Effort, corpus: Path, note: str) -> int:
    """Measure everything, print it, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as name:
        # First, since a child's peak counts what its parent held when it was started.
        large = memory(effort.large, Path(name))
        formats = generated(effort, Path(name))
    files = real(corpus, effort.rounds)
    print(table(formats | files, COLUMNS))
    print(f"\ndiagnose of a {large['MB']:,.0f} MB console log{note}: {large['peak MB']:.0f} MB at most, {large['seconds']:.1f} s\n")
    measured = {f"{name} read MB/s": one["read MB/s"] for name, one in formats.items()}
    measured["slowest store points/s"] = min(one["store points/s"] for one in formats.values())
    measured["peak memory of diagnose, MB"] = large["peak MB"]
    return conclude("importers", {"formats": formats, "corpus": files, "memory": large}, measured, TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller logs and fewer rounds, within a minute")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="a folder whose files/console*.log are measured as well")
    options = parser.parse_args()
    if options.quick:
        return run(QUICK, options.corpus, " (--quick; the full run takes 500 MB)")
    return run(FULL, options.corpus, "")


if __name__ == "__main__":
    sys.exit(main())
