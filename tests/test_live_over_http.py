"""Logs that are followed over HTTP into a collector that is killed in the middle: nothing lost, and the findings of `diagnose`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gradwatch.cli.report import diagnose
from gradwatch.client.http_query import HttpQuery
from gradwatch.client.http_transport import HttpTransport
from gradwatch.errors import GradwatchError
from gradwatch.follow.folder import FolderFollower
from gradwatch.importers.reader import LogFile
from gradwatch.schema import Finding

FILES = Path(__file__).resolve().parents[1].parent / "shared" / "corpus" / "files"
NAMES = ("jsonl-08.jsonl", "console-dict-03.log", "tensorboard-01.tfevents", "trainer-state-16.json", "csv-08.csv")
SECONDS = 30.0

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the corpus of real logs does not lie beside the checkout")


@contextmanager
def collector(data: Path, port: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A collector in a process of its own, and its address."""
    command = [sys.executable, "-m", "gradwatch.collector", "--data", str(data), "--port", port]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWATCH_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


def until(condition: Callable[[], bool], explain: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, explain()
        time.sleep(0.05)


def bits(findings: list[Finding]) -> list[bytes]:
    return sorted(msgspec.msgpack.encode(one) for one in findings)


def points(name: str) -> int:
    return sum(len(block) for _, block in LogFile(FILES / name).blocks())


def of_name(query: HttpQuery) -> dict[str, tuple[int, list[Finding]]]:
    """Points and findings by the run's name; nothing while the collector is away."""
    try:
        return {one.info.name: (one.sequence, [found.finding for found in query.findings(one.info.id)]) for one in query.states()}
    except GradwatchError:
        return {}


def test_logs_followed_over_http_through_a_kill_have_the_findings_of_diagnose(tmp_path: Path) -> None:
    logs, wanted = tmp_path / "logs", {name.rpartition(".")[0]: points(name) for name in NAMES}
    logs.mkdir()
    contents = {name: (FILES / name).read_bytes() for name in NAMES}
    with collector(tmp_path / "data", "0") as (first, url):
        transport, query = HttpTransport(url), HttpQuery(url)
        follower = FolderFollower(logs, transport, memory=tmp_path / "memory")
        follower.start()
        for name, content in contents.items():
            (logs / name).write_bytes(content[: len(content) // 2])
        until(lambda: of_name(query).keys() == wanted.keys(), follower.statuses)
        first.kill()
        for name, content in contents.items():
            with (logs / name).open("ab") as log:
                log.write(content[len(content) // 2 :])
        until(lambda: any(one.trouble for one in follower.statuses()), follower.statuses)
    with collector(tmp_path / "data", url.rpartition(":")[2]):
        until(lambda: {name: count for name, (count, _) in of_name(query).items()} == wanted, follower.statuses)
        expected = {name.rpartition(".")[0]: bits(diagnose(FILES / name)[0].findings) for name in NAMES}
        until(lambda: {name: bits(found) for name, (_, found) in of_name(query).items()} == expected, lambda: of_name(query))
        follower.stop()
        follower.join(10)
        query.close()
        transport.close()
