"""A collector that is killed at any moment has every point that it acked, none twice, and each with its bits.

GRADWATCH_KILLS sets how often it is killed.
"""

from __future__ import annotations

import logging
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gradwatch.client.http import Http
from gradwatch.errors import UnavailableError
from gradwatch.schema import Block, Checkpoint, Curve, Event, Series
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch.wire import MSGPACK, Ack, Batch, OpenRun, pack

KILLS = int(os.environ.get("GRADWATCH_KILLS", "5"))
SENDERS = 4
DEADLINE = 60.0


class Service:
    """A collector in a process of its own, always on the same folder, at a new port after each start."""

    def __init__(self, data: Path) -> None:
        self._command = [sys.executable, "-m", "gradwatch.collector", "--data", str(data), "--port", "0"]
        self._process: subprocess.Popen[str] | None = None
        self.up = threading.Event()
        self.url = ""

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        """Wait until the process answers."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("gradwatch collector at http"), line
        self.url = line.split()[-1]
        self.up.set()

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self.up.clear()
        self._process.kill()
        self._process.wait(DEADLINE)
        self._process.stdout.close()

    def stop(self) -> int:
        """End the process as a user would; its exit code."""
        assert self._process is not None
        assert self._process.stdout is not None
        self.up.clear()
        self._process.terminate()
        code = self._process.wait(DEADLINE)
        self._process.stdout.close()
        return code


def batch(who: int, number: int, dice: random.Random) -> Batch:
    """Points at steps that no other batch has, of any bits, and at times what is no point."""
    block = Block()
    series = [Series("loss", f"w{who}/s{at}", role=f"w{who}") for at in range(5)]
    for row in range(dice.randrange(1, 120)):
        pattern = dice.getrandbits(64) | (0x7FF8 << 48 if dice.random() < 0.2 else 0)
        value = struct.unpack("<d", struct.pack("<Q", pattern))[0]
        block.add(series[row % 5], number * 1000 + row, value, float(row))
    saved = [Checkpoint(step=number, uri=f"w{who}/{number}", wall_time=1.0)] if number % 5 == 0 else []
    noted = [Event(kind="note", message=f"w{who}/{number}", wall_time=1.0)] if number % 5 == 0 else []
    return Batch(id=f"w{who}-{number}", process=f"p{who}", columns=pack(block), checkpoints=saved, events=noted)


class Acks:
    """How many acks came, for one who waits for more."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = threading.Condition()

    def count(self) -> None:
        with self._changed:
            self._number += 1
            self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        with self._changed:
            goal = self._number + more
            assert self._changed.wait_for(lambda: self._number >= goal, DEADLINE)


class Sender(threading.Thread):
    """Sends batch after batch to one run, each until it is acked, and remembers what was."""

    def __init__(self, service: Service, who: int, seed: int, enough: threading.Event, acks: Acks) -> None:
        super().__init__(name=f"sender-{who}", daemon=True)
        self.run_id = f"run-{who % 2}"
        self.who = who
        self.acked: list[Batch] = []
        self.interruptions = 0
        self.duplicates = 0
        self._in_hand: Batch | None = None
        self._service = service
        self._dice = random.Random(seed)
        self._enough = enough
        self._acks = acks

    def run(self) -> None:
        while not self._enough.is_set() or self._in_hand is not None:
            assert self._service.up.wait(DEADLINE)
            try:
                self._send_all()
            except UnavailableError:
                self.interruptions += 1

    def _send_all(self) -> None:
        """Send batch after batch until told; one that was not acked stays in hand, and is sent again by the next call."""
        with Http(self._service.url, timeout=10.0) as http:
            self._post(http, "/api/v1/runs", OpenRun(id=self.run_id, process=f"p{self.who}", launch="one"))
            while not self._enough.is_set() or self._in_hand is not None:
                self._in_hand = self._in_hand or batch(self.who, len(self.acked), self._dice)
                ack = msgspec.msgpack.decode(self._post(http, f"/api/v1/runs/{self.run_id}/batches", self._in_hand), type=Ack)
                self.duplicates += ack.duplicate
                self.acked.append(self._in_hand)
                self._acks.count()
                self._in_hand = None

    def _post(self, http: Http, path: str, content: Batch | OpenRun) -> bytes:
        return http.request("POST", path, msgspec.msgpack.encode(content), {"Content-Type": MSGPACK, "Accept": MSGPACK})


@contextmanager
def senders(service: Service, seed: int, acks: Acks) -> Iterator[list[Sender]]:
    """Senders at work; at the end they have delivered what they had in hand."""
    enough = threading.Event()
    working = [Sender(service, who, seed + who, enough, acks) for who in range(SENDERS)]
    for one in working:
        one.start()
    yield working
    enough.set()
    for one in working:
        one.join(DEADLINE)
        assert not one.is_alive()


def torment(service: Service, dice: random.Random, acks: Acks) -> None:
    """Kill the collector at random moments: under load, and now and then while it starts."""
    never = threading.Event()
    for _ in range(KILLS):
        if dice.random() < 0.2:
            never.wait(dice.uniform(0.0, 1.0))
        else:
            service.wait()
            acks.wait_for(dice.randrange(60))
            never.wait(dice.uniform(0.0, 0.02))
        service.kill()
        service.launch()
    service.wait()


def test_every_acked_point_survives_any_kill_once_and_bit_for_bit(tmp_path: Path) -> None:
    seed = 20261130
    service = Service(tmp_path)
    service.launch()
    acks = Acks()
    with senders(service, seed, acks) as working:
        torment(service, random.Random(seed), acks)
    assert service.stop() == 0
    store = open_store(tmp_path)
    for name in ("run-0", "run-1"):
        check(store, name, [one for one in working if one.run_id == name])
    store.close()
    assert sum(one.interruptions for one in working) > 0
    batches, duplicates = sum(len(one.acked) for one in working), sum(one.duplicates for one in working)
    logging.getLogger(__name__).info(
        "%d kills, %d batches, %d of them committed but not acked at first", KILLS, batches, duplicates
    )


def check(store: LocalStore, run: str, of_run: list[Sender]) -> None:
    batches = [batch for one in of_run for batch in one.acked]
    points = sum(len(one.columns.flags) for one in batches if one.columns is not None)
    assert store.state(run).sequence == points
    assert sum(len(block) for _, block in store.replay(run)) == points
    assert {name: bits_of(curve) for name, curve in by_name(store.curves(run)).items()} == expected(batches)
    marks = sorted(batch.checkpoints[0].uri for batch in batches if batch.checkpoints)
    assert sorted(one.uri for one in store.checkpoints(run)) == marks
    assert sorted(one.message for one in store.events(run) if one.kind == "note") == marks
    assert [one.number for one in store.attempts(run)] == [1]


def by_name(curves: list[Curve]) -> dict[str, Curve]:
    return {one.series.source_key: one for one in curves}


def bits_of(curve: Curve) -> dict[int, bytes]:
    return {step: struct.pack("<d", value) for step, value in zip(curve.steps, curve.values, strict=True)}


def expected(batches: list[Batch]) -> dict[str, dict[int, bytes]]:
    """Step and bits by series, from the bytes that were sent."""
    wanted: dict[str, dict[int, bytes]] = {}
    for one in batches:
        columns = one.columns
        assert columns is not None
        rows = struct.iter_unpack(
            "<iq",
            b"".join(columns.index[4 * at : 4 * at + 4] + columns.step[8 * at : 8 * at + 8] for at in range(len(columns.flags))),
        )
        for at, (index, step) in enumerate(rows):
            wanted.setdefault(columns.series[index].source_key, {})[step] = columns.value[8 * at : 8 * at + 8]
    return wanted
