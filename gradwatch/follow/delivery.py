"""Brings a file's points to the collector: each once, in the attempt that they belong to, however often the file is read."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gradwatch.client.transport import Transport
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.follow.growing import Signature, StoppedError, signature
from gradwatch.follow.journal import Journal
from gradwatch.follow.lane import DivergedError, Lane
from gradwatch.follow.tally import by_attempt, kept
from gradwatch.importers.blocks import RunLog
from gradwatch.importers.names import storable
from gradwatch.importers.source import MisjudgedError
from gradwatch.schema import FINISHED, Block, Event, Series
from gradwatch.wire import Batch, OpenRun, pack

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
BEGINNING_BYTES = 1024
MAX_NAME = 1000
"""Characters of a series' name; a longer one is no name, and the collector refuses it."""
MAX_DEPTH = 20
_GONE = 404
_TURN = threading.Lock()
"""Followers take turns: a transport over HTTP is for one thread at a time, and may be shared by all of them."""
Answer = TypeVar("Answer")


class RunOfFile(NamedTuple):
    """How a file's runs are announced. `key` is the file's identity on this machine, `name` gives a run within it its name."""

    key: str
    name: Callable[[str], str]
    project: str
    source: str

    def id(self, run: str) -> str:
        """The id of a run within the file: the same whenever and by whomever the file is followed."""
        return hashlib.sha256(f"{self.key}\x1f{run}".encode()).hexdigest()[:12]


class Delivery:
    """Sends the points of one file. `trouble` says what keeps it from doing so, `points` counts what was delivered by it."""

    def __init__(self, transport: Transport, about: RunOfFile, journal: Journal, stop: threading.Event) -> None:
        self._transport, self._about, self._journal, self._stop = transport, about, journal, stop
        self._lanes: list[Lane] = []
        self._ended: Signature | None = None
        self._events: list[Event] = []
        self._left_out = False
        self.path = Path()
        self.format = ""
        self.trouble = ""
        self.points = 0

    def begin(self, path: Path, form: str) -> None:
        """A reading of the file begins at its start."""
        self.path, self.format = path, form
        self._lanes, self._ended = self._journal.read()

    def note(self, kind: str, message: str) -> None:
        """Report an event with the next batch."""
        self._events.append(Event(kind=kind, message=message, facts={"file": self._about.source}))

    def has_all_of(self, path: Path) -> bool:
        """Whether the log had ended before, its file is as it was then, and the collector has all of it."""
        self._lanes, self._ended = self._journal.read()
        now = signature(path)
        if now is None or now != self._ended or not self._lanes:
            return False
        return all(lane.settle(self._open(lane, RunLog(), 0.0)) for lane in self._lanes)

    def deliver(self, run: str, log: RunLog, block: Block) -> None:
        """Send what is new in a block. MisjudgedError where the file has to be read again first."""
        named = _named(block)
        if len(named) < len(block) and not self._left_out:
            self._left_out = True
            self.note("lost_data", f"series whose name has more than {MAX_NAME:,} characters, or none, were left out")
        for attempt, part in by_attempt(named):
            if not len(part):
                continue
            lane = self._lane(run, attempt, log, part)
            try:
                fresh = lane.fresh(part)
            except DivergedError as error:
                self._diverge(lane, part, f"it no longer says what was read before ({error})")
            else:
                self._send(lane, log, fresh)

    def end(self, seen: Signature) -> None:
        """The log has ended: so have its runs, until it grows again."""
        for lane in self._newest():
            if not lane.ended and lane.told.total:
                self._call(lane, Batch(id=_token(), process=lane.process_name, events=self._events, status=FINISHED))
                self._events = []
                lane.ended = True
        self._ended = seen
        self._journal.keep(self._lanes, seen)

    def _newest(self) -> Iterable[Lane]:
        return {lane.run: lane for lane in sorted(self._lanes, key=lambda one: one.attempt)}.values()

    def _lane(self, run: str, attempt: int, log: RunLog, block: Block) -> Lane:
        """The lane of an attempt, opened; a new one where there is none, or where the collector lost a part of it."""
        lane = next((one for one in self._lanes if (one.run, one.attempt) == (run, attempt)), None)
        if lane is not None and lane.opened:
            return lane
        started = next((one for one in block.wall_time if math.isfinite(one)), 0.0)
        if lane is not None and lane.settle(self._open(lane, log, started)):
            return lane
        self._forget(run, attempt)
        lane = self._add(run, attempt, _token())
        self._open(lane, log, started)
        return lane

    def _add(self, run: str, attempt: int, launch: str) -> Lane:
        lane = Lane(max((one.number for one in self._lanes), default=0) + 1, run, attempt, launch)
        lane.beginning = beginning(self.path)
        self._lanes.append(lane)
        self._journal.keep(self._lanes)
        return lane

    def _forget(self, run: str, attempt: int) -> None:
        """Attempts that come after a changed one are told anew too: the newest is the one that is shown."""
        self._lanes = [one for one in self._lanes if one.run != run or one.attempt < attempt]

    def _diverge(self, lane: Lane, block: Block, why: str) -> None:
        """What the file says now is another attempt, or, of another file in its place, the same one further on."""
        last = max((one for one in self._lanes if one.run == lane.run), key=lambda one: one.attempt)
        if not last.opened:
            last.settle(self._open(last, RunLog(), 0.0))
        goes_on = lane.attempt == 1 and min(block.step) > last.top and not begins_so(self.path, lane.beginning)
        self._forget(lane.run, lane.attempt)
        if goes_on:
            other = self._add(lane.run, 1, last.launch)
            other.process, other.ended, other.base, other.top = last.process, last.ended, last.base + last.told.total, last.top
            why = f"{why}: it is a new file, and its steps go on after {last.top:,}"
        self._journal.keep(self._lanes)
        raise MisjudgedError(why)

    def _open(self, lane: Lane, log: RunLog, started: float) -> int:
        """Announce a lane's process; returns how many points its attempt has."""
        about = self._about
        request = OpenRun(
            id=about.id(lane.run),
            process=lane.process_name,
            name=about.name(lane.run)[:MAX_NAME],
            project=about.project,
            launch=lane.launch,
            source=about.source[:MAX_NAME],
            format=self.format,
            config=_plain(log.config),
            started=started,
        )
        opened = self._try(lambda: self._transport.open(request))
        lane.opened = True
        return opened.points

    def _send(self, lane: Lane, log: RunLog, block: Block) -> None:
        if not len(block):
            return
        if lane.ended:
            lane.process, lane.ended = lane.process + 1, False
            self._journal.keep(self._lanes)
            self._open(lane, log, 0.0)
        self._journal.note(lane.announce(block))
        self._call(lane, Batch(id=_token(), process=lane.process_name, columns=pack(block), events=self._events))
        self._events = []
        self.points += len(block)
        if self._journal.crowded:
            self._journal.keep(self._lanes)

    def _call(self, lane: Lane, batch: Batch) -> None:
        try:
            self._try(lambda: self._transport.send(self._about.id(lane.run), batch))
        except RefusedError as error:
            if error.status != _GONE:
                raise
            raise MisjudgedError("the collector does not know the run any more") from error

    def _try(self, call: Callable[[], Answer]) -> Answer:
        """The call's answer, however long the collector is away: the file itself keeps what is to be sent."""
        pause = FIRST_PAUSE
        while True:
            try:
                with _TURN:
                    answer = call()
            except UnavailableError as error:
                self.trouble = str(error)
                if self._stop.wait(error.retry_after or pause):
                    raise StoppedError from error
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self.trouble = ""
                return answer


def beginning(path: Path) -> str:
    """The file's first bytes, as a length and a digest."""
    with path.open("rb") as stream:
        head = stream.read(BEGINNING_BYTES)
    return f"{len(head)}:{hashlib.blake2b(head, digest_size=16).hexdigest()}"


def begins_so(path: Path, told: str) -> bool:
    """Whether the file still begins as it did when `beginning` gave `told`."""
    length = int(told.partition(":")[0] or 0)
    with path.open("rb") as stream:
        head = stream.read(length)
    return f"{len(head)}:{hashlib.blake2b(head, digest_size=16).hexdigest()}" == told


def _token() -> str:
    return f"follow-{os.getpid()}-{uuid.uuid4().hex[:16]}"


def _named(block: Block) -> Block:
    """The block without series whose name is no name."""
    bad = {at for at, one in enumerate(block.series) if not _is_named(one)}
    return kept(block, (at for at, index in enumerate(block.index) if index not in bad)) if bad else block


def _is_named(one: Series) -> bool:
    return bool(one.metric) and max(map(len, (one.metric, one.source_key, one.role, one.agent, one.policy, one.scope))) <= MAX_NAME


def _plain(value: Any, depth: int = 0) -> Any:
    """Settings as every encoding can hold them: a number beyond 64 bits, deep nesting, or text that is none, is written out."""
    if depth > MAX_DEPTH:
        return _plain(str(value)[:MAX_NAME])
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value) if abs(value) < 10**300 else "a number of more than 300 digits"
    return value
