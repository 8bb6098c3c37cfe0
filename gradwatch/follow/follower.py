"""Follows one log file: a thread that reads it through its importer as it grows, and sends what is new to a collector."""

from __future__ import annotations

import hashlib
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gradwatch.client.transport import Transport
from gradwatch.errors import GradwatchError, RefusedError
from gradwatch.follow.delivery import LONGEST_PAUSE, Delivery, RunOfFile
from gradwatch.follow.growing import POLL_SECONDS, Signature, StoppedError, signature
from gradwatch.follow.journal import Journal
from gradwatch.follow.reading import GrowingReading, read_document, recognise_growing
from gradwatch.importers import Importer
from gradwatch.importers.blocks import RunLog
from gradwatch.importers.names import run_name, storable
from gradwatch.importers.source import MisjudgedError, Source
from gradwatch.schema import Block

END_SECONDS = 1800.0
"""A log that has not grown for so long has ended."""
MAX_WARNINGS = 50

WAITING, FOLLOWING, ENDED, RESTING, REFUSED, FAILED = ("waiting", "following", "ended", "resting", "refused", "failed")
_CHECKPOINT = re.compile(r"checkpoint-\d+$")


class FileStatus(NamedTuple):
    """How far the following of a file is. `lag_bytes` are still to be read; `trouble` says what is wrong now, if anything is.

    `state`: waiting (nothing in it that can be read yet), following, ended (idle for long; its runs are finished), resting (read as
    far as it goes, and looked at only when it changes), refused (by the collector, or since it is packed), failed (cannot be read).
    """

    path: Path
    state: str
    format: str
    rows: int
    points: int
    lag_bytes: int
    idle_seconds: float
    trouble: str
    warnings: tuple[str, ...]


class Follower:
    """Follows one file from `start` to `stop`; both may be called again.

    `key` stands for the file where its path changes while its run stays the same; `memory` is the folder that remembers what was
    told, None for none. Nothing is raised: what goes wrong is in `status`, and an event of the run.
    """

    def __init__(
        self,
        path: Path,
        transport: Transport,
        project: str = "default",
        name: Callable[[str], str] | None = None,
        *,
        key: Path | None = None,
        memory: Path | None = None,
        end_after: float = END_SECONDS,
    ) -> None:
        self.path = path
        place = file_key(key or path)
        about = RunOfFile(place, name or (lambda run: run_name(path, run)), project, storable(str(path.absolute())))
        remembered = memory and memory / "follow" / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.jsonl"
        self._stop = threading.Event()
        self._journal = Journal(remembered)
        self._delivery = Delivery(transport, about, self._journal, self._stop)
        self._end_after = end_after
        self._thread: threading.Thread | None = None
        self._reading: GrowingReading | None = None
        self._waits_since: float | None = None
        self._runs: dict[str, RunLog] = {}
        self._state, self._trouble, self._form = WAITING, "", ""
        self._warnings: list[str] = []
        self.seen: Signature | None = None
        """The file as it was when it was read last; None where it is to be read again in any case."""

    def start(self) -> None:
        """Follow the file in a thread of its own, from its start or from where an earlier following had come."""
        if self.alive:
            return
        self._stop.clear()
        self._state = FOLLOWING
        self._thread = threading.Thread(target=self._run, name=f"follow {self.path.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following. The runs stay as they are, and a later following goes on."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether the file is being followed."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def state(self) -> str:
        """The state as in `FileStatus`."""
        return self._state

    @property
    def rows(self) -> int:
        """The metric rows that the file has so far."""
        reading = self._reading
        return sum(log.rows for log in list((reading.runs if reading is not None else self._runs).values()))

    @property
    def idle_seconds(self) -> float:
        """Seconds since the file last grew, as far as this following saw; 0 while there is something to be read."""
        reading, since = self._reading, self._waits_since
        if reading is not None:
            return reading.source.idle_seconds if reading.source.waits else 0.0
        return 0.0 if since is None else time.monotonic() - since

    def status(self) -> FileStatus:
        """How far it is."""
        reading, now = self._reading, signature(self.path)
        position = reading.source.position if reading is not None else now.size if now and self.seen == now else 0
        return FileStatus(
            path=self.path,
            state=self._state,
            format=reading.form if reading is not None else self._form,
            rows=self.rows,
            points=self._delivery.points,
            lag_bytes=max(0, (now.size if now else 0) - position),
            idle_seconds=self.idle_seconds,
            trouble=self._trouble or self._delivery.trouble,
            warnings=tuple(self._warnings + ([self._journal.trouble] if self._journal.trouble else [])),
        )

    def _run(self) -> None:
        """The thread: it ends where there is nothing to do until the file changes."""
        state = FAILED
        try:
            with self._journal.claimed() as mine:
                state, self._trouble = self._follow() if mine else (REFUSED, f"{self.path}: is followed by another process already")
        except StoppedError:
            state, self._trouble = RESTING, ""
        except RefusedError as error:
            state, self._trouble = REFUSED, str(error)
        except (GradwatchError, OSError) as error:
            self._trouble = f"{self.path}: {error}"
        finally:
            # An importer's bug ends the following of this file alone, and is said by the interpreter.
            self._state = state
            if state == FAILED and not self._trouble:
                self._trouble = f"{self.path}: an error within gradwatch, which the program's own output shows"
            self._keep_reading(None)

    def _follow(self) -> tuple[str, str]:
        """Read the file again and again, until it has ended or holds nothing to read; returns the state, and what is wrong."""
        self._trouble = ""
        if self._delivery.has_all_of(self.path):
            self.seen = signature(self.path)
            return ENDED, ""
        pause = 0.0
        while not self._stop.wait(pause):
            before = signature(self.path)
            head = _head(self.path)
            if head.startswith(b"\x1f\x8b"):
                self.seen = before
                return REFUSED, f"{self.path}: a gzip file is not written to any more; read it once with `gradwatch import`"
            importer = recognise_growing(head)
            if importer is None:
                self.seen = before
                return WAITING, ""
            try:
                if self._read(importer, before):
                    return ENDED, ""
                pause = 0.0
            except MisjudgedError as error:
                self._warn(f"{self.path.name} is read again from its start: {error}", "read_again")
                pause = min(2 * pause or POLL_SECONDS, LONGEST_PAUSE)
        return RESTING, ""

    def _read(self, importer: Importer, before: Signature | None) -> bool:
        """Read the file once, as long as that lasts; returns whether the log has ended."""
        self._form = importer.format
        self._delivery.begin(self.path, importer.format)
        if importer.rewritten:
            return self._read_document(importer, before)
        reading = GrowingReading(self.path, importer, self._deliver, self._stop, self._end_after)
        self._keep_reading(reading)
        try:
            reading.read()
            if reading.source.ended:
                self._delivery.end(reading.source.seen)
        finally:
            # Where it was stopped at its end, nothing is to be done until it changes.
            self.seen = reading.source.seen if reading.source.position >= reading.source.seen.size else None
            self._keep_reading(None)
        return reading.source.ended

    def _read_document(self, importer: Importer, before: Signature | None) -> bool:
        """Read a document, and wait until there is another one."""
        source, self._runs = read_document(self.path, importer, self._deliver)
        self._report(source)
        self.seen = before
        self._waits_since = time.monotonic() - (max(0.0, time.time() - before.changed / 1e9) if before else 0.0)
        try:
            while signature(self.path) in (before, None):
                if before is not None and self.idle_seconds >= self._end_after:
                    self._delivery.end(before)
                    return True
                if self._stop.wait(POLL_SECONDS):
                    raise StoppedError
        finally:
            self._waits_since = None
        self._settle()
        return False

    def _settle(self) -> None:
        """Wait until the file has not changed for a moment: a document that is being written is half a document."""
        before, now = None, signature(self.path)
        while now is None or now != before:
            if self._stop.wait(POLL_SECONDS):
                raise StoppedError
            before, now = now, signature(self.path)

    def _deliver(self, run: str, log: RunLog, block: Block) -> None:
        reading = self._reading
        if reading is not None:
            self._delivery.format = reading.form
            self._report(reading.source)
        self._delivery.deliver(run, log, block)

    def _report(self, source: Source) -> None:
        for message in source.all_warnings():
            self._warn(message, "log")

    def _warn(self, message: str, kind: str) -> None:
        if message not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings.append(message)
            self._delivery.note(kind, message)

    def _keep_reading(self, reading: GrowingReading | None) -> None:
        if reading is None and self._reading is not None:
            self._runs, self._form = self._reading.runs, self._reading.form
        self._reading = reading


def file_key(path: Path) -> str:
    """What a file is known by: its machine and path, without the checkpoint that a trainer's state lies in."""
    whole = path.absolute().resolve()
    if whole.name == "trainer_state.json" and _CHECKPOINT.match(whole.parent.name):
        whole = whole.parent.parent / whole.name
    return f"{socket.gethostname()}:{storable(str(whole))}"


def _head(path: Path) -> bytes:
    """The file's first bytes, packed or not."""
    with path.open("rb") as stream:
        start = stream.read(2)
    return start if start == b"\x1f\x8b" else Source(path).head()
