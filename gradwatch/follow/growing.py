"""A log file that is being written, as importers see it: its bytes so far, then those that come, until it is another file."""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from gradwatch.importers.source import MAX_LINE_BYTES, Source

POLL_SECONDS = 0.2
HEAD_BYTES = 1024
TAIL_BYTES = 64
"""Bytes at the start and before the reader's place that tell the file from another one that was written over it."""
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class StoppedError(Exception):
    """The following was stopped: what is still held back is left for the next reading."""


class Signature(NamedTuple):
    """What changes where a file is written to: device, inode, bytes, and time of change in nanoseconds."""

    device: int
    inode: int
    size: int
    changed: int


def signature(path: Path) -> Signature | None:
    """The file's signature now; None where it is not there or cannot be reached."""
    try:
        return _signature(path.stat())
    except (OSError, ValueError):
        return None


def _signature(found: os.stat_result) -> Signature:
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class GrowingSource(Source):
    """One growing file, from its start until it is replaced, cut short, or idle for `end_after` seconds (then `ended`).

    At its present end, and when it has ended, `at_end` is called with True; while there is more to read, with False now and then.
    Lines are handed out once they are complete. Raises StoppedError where `stop` is set.
    """

    def __init__(self, path: Path, stop: threading.Event, at_end: Callable[[bool], None], end_after: float) -> None:
        super().__init__(path)
        self._stop = stop
        self._at_end = at_end
        self.end_after = end_after
        self.position = 0
        self.ended = False
        self.waits = False
        """Whether everything was read, and the next bytes are awaited."""
        self.seen = _signature(path.stat())
        self._grew = time.monotonic() - max(0.0, time.time() - self.seen.changed / 1e9)
        self._reached = 0
        self._stream: int | None = None
        self._head = self._tail = b""

    @property
    def idle_seconds(self) -> float:
        """Seconds since the file last grew."""
        return time.monotonic() - self._grew

    def advance(self, count: int) -> None:
        """Take note of so many bytes that were read."""
        self.position += count

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The file's bytes as they come, up to the last line end; an empty chunk, while `idle`, at its present end."""
        with self.path.open("rb", buffering=0) as stream:
            self._stream = stream.fileno()
            self.seen = _signature(os.fstat(self._stream))
            held = b""
            try:
                while (piece := stream.read(size)) or (yield from self._pause()):
                    self._remember(piece)
                    whole, held = self._whole(held + piece)
                    if whole:
                        yield whole
                    self._check()
            finally:
                self._stream = None
            if self.ended and held:
                yield held

    def more(self) -> bool:
        """Wait for the file to grow; False where it is another one by now, or idle for so long that it has ended."""
        self._reached = max(self._reached, self.position)
        grown = self._look()
        if grown is None and self._is_over():
            self.ended = True
        self._at_end(True)
        while grown is None and not self.ended:
            grown = self._look()
            self.ended = grown is None and self._is_over()
            self.waits = grown is None
            if self.waits and not self.ended and self._stop.wait(POLL_SECONDS):
                raise StoppedError
        return bool(grown)

    def _pause(self) -> Generator[bytes, None, bool]:
        # Where nothing comes any more, nothing need be guessed.
        if self.position and not self._is_over():
            self.idle = True
            yield b""
            self.idle = False
        return self.more()

    def _is_over(self) -> bool:
        return self.idle_seconds >= self.end_after

    def _check(self) -> None:
        if self._stop.is_set():
            raise StoppedError
        self._at_end(False)

    def _remember(self, piece: bytes) -> None:
        self.advance(len(piece))
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _whole(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes up to the last line end or carriage return, and the rest, which waits to be completed."""
        cut = len(data) if self._head.startswith(_WIDE) else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        return (data, b"") if len(data) - cut > MAX_LINE_BYTES else (data[:cut], data[cut:])

    def _look(self) -> bool | None:
        """True where the file has grown, False where it was replaced, None where nothing happened."""
        now = signature(self.path)
        if now is None or now[:2] != self.seen[:2]:
            return self._after_rename(now)
        if now == self.seen and now.size <= self._reached:
            return None
        if now.size < self.position or not self._is_same():
            return False
        grown = now.size > self._reached
        self.seen = now
        if grown:
            self._reached = now.size
            self._grew = time.monotonic()
        return grown or None

    def _after_rename(self, now: Signature | None) -> bool | None:
        """The writer may go on with the old file until a new one has content."""
        if self._stream is not None and os.fstat(self._stream).st_size > self.position:
            self._grew = time.monotonic()
            return True
        return None if now is None or not now.size else False

    def _is_same(self) -> bool:
        """Whether the bytes at the file's start and before our place are still those that were read."""
        if self._stream is None:
            return True
        place = self.position - len(self._tail)
        head, tail = os.pread(self._stream, len(self._head), 0), os.pread(self._stream, len(self._tail), place)
        return (head, tail) == (self._head, self._tail)
