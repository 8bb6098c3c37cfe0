"""Sends what waits in a spool folder: what processes that have ended could not deliver."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from gradwatch.client.frames import BATCH, HEADER, Damage, Frame, Header, encode_frame, read_frames
from gradwatch.client.identity import Born
from gradwatch.client.notices import print_line
from gradwatch.client.sender import NO_ACCESS, TOO_LARGE
from gradwatch.client.splitting import halves, points_of
from gradwatch.client.spool import REFUSED, SUFFIX
from gradwatch.client.transport import Transport
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import Batch, OpenRun

T = TypeVar("T")
NAME = re.compile(r"(?P<run>[^@]+)@(?P<process>(?P<host>[^@]+)-(?P<pid>\d+)-(?P<started>\d+)-\w+)@\d+\.spool")
QUIET_SECONDS = 600.0
"""A spool of another host, where a process cannot be looked up, is left alone until it has not been written for this long."""
BUSY_TRIES = 10
MOST_WAIT = 30.0


class SyncedRun(msgspec.Struct):
    """What became of one run's spools. `damaged` counts frames that were not intact; a torn last one is the mark of a kill."""

    run: str
    batches: int = 0
    points: int = 0
    duplicates: int = 0
    damaged: int = 0
    refused: int = 0
    files: int = 0


class SyncResult(msgspec.Struct):
    """What became of a folder. `alive` are files of processes that still run; `left` are files that wait on, each with why."""

    runs: dict[str, SyncedRun] = {}
    alive: list[Path] = []
    left: dict[Path, str] = {}


def sync(
    folder: Path, connect: Callable[[], Transport], progress: Callable[[str], None] = print_line, keep: bool = False
) -> SyncResult:
    """Send every batch in the folder's spools, in order, and remove each file once all of it is durable (unless `keep`).

    A batch that the collector has already adds nothing, so a sync may be repeated or cut short. UnavailableError where the
    collector cannot be reached.
    """
    result = SyncResult()
    transport: Transport | None = None
    try:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            header = _header(path)
            if header is None:
                result.left[path] = "neither its first frame nor its name says whose it is"
                continue
            if _may_be_alive(path, header):
                result.alive.append(path)
                continue
            transport = transport or connect()
            progress(f"{path.name}: {path.stat().st_size:,} bytes of run {header.request.id}")
            try:
                refused = _send_file(path, header.request, transport, result)
            except RefusedError as error:
                result.left[path] = str(error)
                continue
            if not keep:
                _set_aside(path, header, refused)
                path.unlink(missing_ok=True)
    finally:
        if transport is not None:
            transport.close()
    return result


def _header(path: Path) -> Header | None:
    """Who wrote the file; where its first frame is damaged, what the file's name says."""
    for found in read_frames(path.read_bytes()[:1_000_000]):
        if isinstance(found, Frame) and found.kind == HEADER:
            return msgspec.msgpack.decode(found.body, type=Header)
    name = NAME.fullmatch(path.name)
    return name and Header(OpenRun(id=name["run"], process=name["process"]), name["host"], int(name["pid"]), name["started"])


def _may_be_alive(path: Path, header: Header) -> bool:
    alive = Born(header.host, header.pid, header.started).is_alive
    return time.time() - path.stat().st_mtime < QUIET_SECONDS if alive is None else alive


def _send_file(path: Path, request: OpenRun, transport: Transport, result: SyncResult) -> list[Batch]:
    """Send a file's batches; return those that the collector refuses. RefusedError where it refuses the run, or us."""
    tally = result.runs.setdefault(request.id, SyncedRun(request.id))
    tally.files += 1
    _patiently(lambda: transport.open(request))
    refused: list[Batch] = []
    for found in read_frames(path.read_bytes()):
        batch = _batch(found)
        if batch is None:
            tally.damaged += isinstance(found, Damage) or found.kind != HEADER
        else:
            refused += _send(transport, request.id, batch, tally)
    return refused


def _batch(found: Frame | Damage) -> Batch | None:
    if isinstance(found, Damage) or found.kind != BATCH:
        return None
    try:
        return msgspec.msgpack.decode(found.body, type=Batch)
    except msgspec.DecodeError:
        return None


def _send(transport: Transport, run: str, batch: Batch, tally: SyncedRun) -> Iterator[Batch]:
    """Send a batch, or its halves where it is too large; give back what the collector refuses for good."""
    try:
        ack = _patiently(lambda: transport.send(run, batch))
    except RefusedError as error:
        if error.status in NO_ACCESS:
            raise
        parts = halves(batch) if error.status == TOO_LARGE else None
        if parts is None:
            tally.refused += 1
            yield batch
        for part in parts or ():
            yield from _send(transport, run, part, tally)
        return
    tally.batches += 1
    tally.duplicates += ack.duplicate
    tally.points += 0 if ack.duplicate else points_of(batch)


def _patiently(ask: Callable[[], T]) -> T:
    """The answer of a collector that may be busy: it is asked again after the time that it names."""
    for _ in range(BUSY_TRIES):
        try:
            return ask()
        except UnavailableError as error:
            if error.retry_after is None:
                raise
            time.sleep(min(error.retry_after, MOST_WAIT))
    return ask()


def _set_aside(path: Path, header: Header, refused: list[Batch]) -> None:
    if not refused:
        return
    aside = path.with_name(path.name + REFUSED)
    with aside.open("ab") as file:
        if not file.tell():
            file.write(encode_frame(HEADER, msgspec.msgpack.encode(header)))
        file.writelines(encode_frame(BATCH, msgspec.msgpack.encode(batch)) for batch in refused)
