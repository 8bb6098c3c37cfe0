"""kill -9 of a logging process at random moments, on a network that comes and goes: what was acked is there, once, bit for bit.

What the process had in its spool arrives with `sync`; what it had only in memory is what a kill may cost.
"""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.sync import sync
from gradwatch.store import open_store

KILLS = int(os.environ.get("GRADWATCH_KILLS", "5"))

PROGRAM = """
import os, struct, random, sys, time
import gradwatch
from gradwatch.client import http_transport
from gradwatch.wire import unpack

acked = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
deliver = http_transport.HttpTransport.send

def noting(self, run, batch):
    ack = deliver(self, run, batch)
    if batch.columns is not None:
        os.write(acked, (" ".join(map(str, unpack(batch.columns).step)) + "\\n").encode())
    return ack

http_transport.HttpTransport.send = noting
run = gradwatch.init(id=sys.argv[1], quiet=True)
print("ready", flush=True)
step = 0
while True:
    bits = random.Random(step).getrandbits(64)
    run.log({"loss": struct.unpack("<d", struct.pack("<Q", bits))[0]}, step=step)
    step += 1
    time.sleep(0.0005)
"""


class Network:
    """Forwards to a port while it is up; going down cuts every connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.up = True
        self._open = True
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._open = self.up = False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._threads:
            one.join(5)

    def _accept(self) -> None:
        while self._open:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            if not self.up:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._threads.append(threading.Thread(target=self._forward, args=(near, far), daemon=True))
            self._threads[-1].start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, suppress(OSError):
            while self.up:
                for one in select.select([near, far], [], [], 0.02)[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    (far if one is near else near).sendall(data)


@contextmanager
def collector(data: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "gradwatch.collector", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(30)


def log_until_killed(run: str, network: Network, folder: Path, chance: random.Random) -> list[int]:
    """The steps that were acked to a process before it was killed."""
    acked = folder / f"{run}.acked"
    environment = os.environ | {"GRADWATCH_URL": network.url, "GRADWATCH_DIR": str(folder / "spool")}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, run, str(acked)], env=environment, stdout=subprocess.PIPE)
    assert program.stdout is not None
    with program.stdout:
        program.stdout.readline()
        death = time.monotonic() + chance.uniform(0.1, 1.5)
        pause = threading.Event()
        while (left := death - time.monotonic()) > 0:
            pause.wait(min(left, chance.uniform(0.05, 0.3)))
            network.up = chance.random() < 0.6
        program.kill()
        program.wait()
    network.up = True
    lines = acked.read_text().split("\n")[:-1]
    return [int(step) for line in lines for step in line.split()]


def bits_of(step: int) -> int:
    return random.Random(step).getrandbits(64)


def test_what_was_acked_survives_kill_9_of_the_client_once_and_bit_for_bit(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("GRADWATCH_SEED", str(time.time_ns()))))
    runs: dict[str, list[int]] = {}
    with collector(tmp_path / "data") as url:
        network = Network(int(url.rpartition(":")[2]))
        for number in range(KILLS):
            runs[f"run{number}"] = log_until_killed(f"run{number}", network, tmp_path, chance)
        network.close()
        spooled = len(list((tmp_path / "spool").glob("*.spool")))
        result = sync(tmp_path / "spool", lambda: HttpTransport(url), progress=lambda line: None)
        assert not result.left
        assert not result.alive
        assert not list((tmp_path / "spool").glob("*.spool"))
        assert sum(one.files for one in result.runs.values()) == spooled
    store = open_store(tmp_path / "data")
    try:
        known = {one.id for one in store.runs()}
        for run, acked in runs.items():
            points = [point for _, block in store.replay(run) for point in block] if run in known else []
            stored = Counter(point.step for point in points)
            assert set(acked) <= stored.keys(), f"{run}: acked steps are missing"
            assert max(stored.values(), default=1) == 1, f"{run}: a step is there twice"
            assert all(struct.unpack("<Q", struct.pack("<d", point.value))[0] == bits_of(point.step) for point in points)
            assert [point.step for point in points] == list(range(len(points))), f"{run}: a gap, or out of order"
    finally:
        store.close()
    assert any(runs.values())
