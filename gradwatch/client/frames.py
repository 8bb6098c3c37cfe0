"""The file format of the spool: frames with a length and a checksum, appended by one process.

A file starts with a frame of kind `HEADER`, which says which process of which run wrote it; each further frame is one batch. A
torn last frame (the process was killed) and damaged frames are recognised and skipped: the next intact frame is found by its mark.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gradwatch.client.identity import Born
from gradwatch.wire import OpenRun

MARK = b"\x93GW1"
HEADER, BATCH = 0, 1
_HEAD = struct.Struct("<4sBII")
SIZE = _HEAD.size


class Header(msgspec.Struct, frozen=True):
    """Who wrote a spool: what it announces to a collector, and the process of the machine."""

    request: OpenRun
    host: str
    pid: int
    started: str

    @property
    def born(self) -> Born:
        """The process."""
        return Born(self.host, self.pid, self.started)


class Frame(NamedTuple):
    """An intact frame and where the next one starts."""

    kind: int
    body: bytes
    end: int


class Damage(NamedTuple):
    """Bytes that are no intact frame. `torn`: they are the file's last, as a killed process leaves them."""

    start: int
    end: int
    torn: bool


def encode_frame(kind: int, body: bytes) -> bytes:
    """A frame as bytes."""
    return _HEAD.pack(MARK, kind, len(body), _checksum(kind, body)) + body


def frame_at(data: bytes, start: int) -> Frame | None:
    """The intact frame that starts there, or None."""
    if len(data) < start + SIZE:
        return None
    mark, kind, length, checksum = _HEAD.unpack_from(data, start)
    body = data[start + SIZE : start + SIZE + length]
    intact = mark == MARK and len(body) == length and checksum == _checksum(kind, body)
    return Frame(kind, body, start + SIZE + length) if intact else None


def read_frames(data: bytes) -> Iterator[Frame | Damage]:
    """Every intact frame in order, and the damage between them."""
    at = 0
    while at < len(data):
        frame = frame_at(data, at)
        if frame is not None:
            yield frame
            at = frame.end
            continue
        following = _next_intact(data, at + 1)
        yield Damage(at, following, torn=following == len(data))
        at = following


def _next_intact(data: bytes, start: int) -> int:
    at = data.find(MARK, start)
    while at >= 0 and frame_at(data, at) is None:
        at = data.find(MARK, at + 1)
    return len(data) if at < 0 else at


def _checksum(kind: int, body: bytes) -> int:
    return zlib.crc32(body, kind)
