"""Batches that wait on disk for the collector: an append-only queue of files of one process, safe on NFS.

Nothing is locked, renamed or rewritten: this process alone appends to its files, and removes a file when all its batches have
been delivered. The queue is cut into segments so that the oldest can go where the limit is reached.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from pathlib import Path

import msgspec

from gradwatch.client.frames import BATCH, HEADER, SIZE, Header, encode_frame, frame_at
from gradwatch.wire import Batch

SUFFIX = ".spool"
REFUSED = ".refused"
SEGMENTS = 16
LEAST_SEGMENT = 1 << 20
SYNC_SECONDS = 1.0
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class _Segment:
    """One file: how much of it was written, and how far it has been delivered."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        self.size = start
        self.read = start


class Spool:
    """A queue of batches on disk: `append` at one end, `first` and `advance` at the other. OSError where the disk fails.

    `damaged` lists files that could not be read on; they stay.
    """

    def __init__(self, folder: Path, header: Header, limit: int) -> None:
        self._folder = folder
        self._stem = f"{safe_name(header.request.id)}@{header.request.process}"
        self._header = encode_frame(HEADER, msgspec.msgpack.encode(header))
        self._limit = limit
        self._segment_limit = max(LEAST_SEGMENT, limit // SEGMENTS)
        self._segments: deque[_Segment] = deque()
        self._made = 0
        self._file = -1
        self._refused = -1
        self._first_size = 0
        self.damaged: list[Path] = []
        self._unsynced = False
        self._synced = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Batch)

    def __len__(self) -> int:
        """Bytes that wait."""
        return sum(one.size - one.read for one in self._segments)

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    def append(self, batch: Batch) -> list[Batch]:
        """Keep a batch; return the oldest ones, which the limit pushed out."""
        frame = encode_frame(BATCH, self._encoder.encode(batch))
        if not self._segments or self._is_full(frame) or self._is_gone():
            self._begin()
        try:
            self._write(self._file, frame)
        except OSError:
            # What was written of the frame stays as damage that readers skip; the next frame goes to a new file.
            self._let_go()
            raise
        self._segments[-1].size += len(frame)
        self._unsynced = True
        lost: list[Batch] = []
        while len(self._segments) > 1 and sum(one.size for one in self._segments) > self._limit:
            lost += self._drop_oldest()
        return lost

    def first(self) -> Batch | None:
        """The oldest batch that waits."""
        while self._segments:
            segment = self._segments[0]
            body = self._next_body(segment)
            if body is not None:
                self._first_size = SIZE + len(body)
                return self._decoder.decode(body)
            self._finish_segment()
        return None

    def advance(self) -> None:
        """The batch that `first` gave was delivered."""
        segment = self._segments[0]
        segment.read += self._first_size
        if segment.read >= segment.size:
            self._finish_segment()

    def set_aside(self, batch: Batch) -> Path:
        """Keep a batch that the collector refused, in a file that is not sent again by itself."""
        path = self._folder / f"{self._stem}{SUFFIX}{REFUSED}"
        if self._refused < 0:
            self._refused = self._create(path)
        self._write(self._refused, encode_frame(BATCH, self._encoder.encode(batch)))
        return path

    def sync(self, now: bool = False) -> None:
        """Have the disk keep what was appended, at most once in a while or `now`."""
        if self._unsynced and self._file >= 0 and (now or time.monotonic() - self._synced > SYNC_SECONDS):
            os.fsync(self._file)
            self._unsynced, self._synced = False, time.monotonic()

    def close(self) -> None:
        """Have the disk keep everything, and let go of the files; they stay where batches wait."""
        self.sync(now=True)
        self._let_go()
        if self._refused >= 0:
            os.close(self._refused)
            self._refused = -1

    def _begin(self) -> None:
        path = self._folder / f"{self._stem}@{self._made:04d}{SUFFIX}"
        self.sync(now=True)
        file = self._create(path)
        self._let_go()
        self._file, self._made = file, self._made + 1
        self._segments.append(_Segment(path, len(self._header)))

    def _create(self, path: Path) -> int:
        """A file that holds the header. Where the disk fails nothing is left open, and the next try starts the file anew."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = os.open(path, _FLAGS | os.O_TRUNC, 0o600)
        try:
            self._write(file, self._header)
        except OSError:
            os.close(file)
            raise
        return file

    def _is_full(self, frame: bytes) -> bool:
        size = self._segments[-1].size
        return size > len(self._header) and size + len(frame) > self._segment_limit

    def _is_gone(self) -> bool:
        """Whether somebody removed the file: another machine's `gradwatch sync` may have delivered it."""
        try:
            return self._file < 0 or os.fstat(self._file).st_nlink == 0
        except OSError:
            return True

    @staticmethod
    def _write(file: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]

    def _next_body(self, segment: _Segment) -> bytes | None:
        """The next batch of a segment; None at its end, and where the file is gone or damaged."""
        if segment.read >= segment.size:
            return None
        try:
            with segment.path.open("rb") as file:
                file.seek(segment.read)
                head = file.read(SIZE)
                data = head + file.read(int.from_bytes(head[5:9], "little"))
        except FileNotFoundError:
            return None
        frame = frame_at(data, 0)
        return None if frame is None else frame.body

    def _finish_segment(self) -> None:
        """Remove the oldest file; where it is damaged it stays for `gradwatch sync`, which reads past the damage."""
        segment = self._segments.popleft()
        if segment.read >= segment.size:
            segment.path.unlink(missing_ok=True)
        else:
            self.damaged.append(segment.path)
        if not self._segments:
            self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._unsynced = -1, False

    def _drop_oldest(self) -> list[Batch]:
        segment = self._segments[0]
        lost: list[Batch] = []
        while (body := self._next_body(segment)) is not None:
            lost.append(self._decoder.decode(body))
            segment.read += SIZE + len(body)
        self._finish_segment()
        return lost


def safe_name(text: str) -> str:
    """The text in the characters that every file system allows."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:100]
