"""A collector as a process: it tells its address, and ends without losing what it was sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gradwatch.collector.server import address, bind
from gradwatch.errors import SettingsError
from gradwatch.store import open_store


@contextmanager
def process(data: Path, *more: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "gradwatch.collector", "--data", str(data), "--port", "0", *more]
    one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        yield one
    finally:
        one.kill()
        one.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_received_before_the_end_is_kept(tmp_path: Path, number: signal.Signals) -> None:
    with process(tmp_path) as one, ThreadPoolExecutor(4) as pool:
        assert one.stdout is not None
        url = one.stdout.readline().split()[-1]
        httpx.post(f"{url}/api/v1/runs", json={"id": "r", "process": "p"}).raise_for_status()

        def send(who: int) -> int:
            """How many batches were acked before the collector went away."""
            with httpx.Client(base_url=url) as http:
                for at in range(10_000):
                    body = {"id": f"{who}-{at}", "series": [f"s{who}"], "steps": [{"step": at, "value": [0.5]}]}
                    try:
                        answer = http.post("/api/v1/runs/r/batches", json=body)
                    except httpx.TransportError:
                        return at
                    if answer.status_code != 200:
                        return at
                    if at == 20:
                        one.send_signal(number)
            return 10_000

        acked = sum(pool.map(send, range(4)))
        assert one.wait(20) == 0
    store = open_store(tmp_path)
    assert acked <= store.state("r").sequence <= acked + 4
    store.close()


def test_beyond_loopback_it_does_not_start_without_a_key(tmp_path: Path) -> None:
    with process(tmp_path, "--host", "0.0.0.0", GRADWATCH_API_KEY="") as one:
        _, said = one.communicate(timeout=30)
    assert one.returncode == 1
    assert "GRADWATCH_API_KEY" in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_told() -> None:
    first = bind("127.0.0.1", 0)
    first.listen()
    with pytest.raises(SettingsError, match="cannot listen"):
        bind("127.0.0.1", first.getsockname()[1])
    assert address(first, "0.0.0.0").startswith("http://127.0.0.1:")
    first.close()


def test_a_socket_of_ip_version_6_has_its_brackets() -> None:
    try:
        one = bind("::1", 0)
    except SettingsError:
        pytest.skip("this machine has no IP version 6")
    assert address(one, "::1").startswith("http://[::1]:")
    one.close()
