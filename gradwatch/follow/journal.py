"""Remembers across restarts what was told of a file: one line a batch, written before the batch is sent.

So of the last batch alone it is open whether it arrived, and the collector's count of points settles that. Without a folder that
can be written the same is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gradwatch.follow.growing import Signature
from gradwatch.follow.lane import Lane

try:
    import fcntl
except ImportError:  # Windows has no locks of this kind
    fcntl = None  # type: ignore[assignment]

MAX_APPENDED = 4 * 2**20
"""Bytes of batches after which the file is written anew, shorter."""


class Journal:
    """The lanes of one file. `trouble` says why it is kept in memory only, where it is; `ended` is the file at its log's end."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._appended = 0
        self.trouble = ""

    @property
    def crowded(self) -> bool:
        """Whether it is time to `keep` what is there, in fewer lines."""
        return self._appended > MAX_APPENDED

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether nobody else follows the file with the same memory, who is kept from it as long as the block lasts."""
        with ExitStack() as stack:
            mine = True
            if self._path is not None:
                try:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    mine = _lock(stack.enter_context(self._path.with_suffix(".lock").open("ab")))
                    self._lines = self._path.read_bytes().split(b"\n") if mine and self._path.exists() else []
                except OSError as error:
                    self._fall_back(error)
            yield mine

    def read(self) -> tuple[list[Lane], Signature | None]:
        """The lanes as they were written down last, and the file's signature if its log had ended."""
        lanes: dict[int, Lane] = {}
        ended: Signature | None = None
        for record in self._records():
            if "ended_as" in record:
                ended = Signature(*record["ended_as"])
                continue
            lane = lanes.get(record["lane"])
            if lane is None:
                lanes[record["lane"]] = _lane(record)
                continue
            ended = None
            if lane.pending is not None:
                lane.apply(lane.pending)
            lane.pending = record
        return list(lanes.values()), ended

    def note(self, record: dict[str, Any]) -> None:
        """Add the record of a batch."""
        line = msgspec.json.encode(record)
        self._lines.append(line)
        self._appended += len(line)
        if self._path is None:
            return
        try:
            with self._path.open("ab") as stream:
                stream.write(line + b"\n")
        except OSError as error:
            self._fall_back(error)

    def keep(self, lanes: Iterable[Lane], ended: Signature | None = None) -> None:
        """Write down the lanes, and nothing else."""
        records: list[dict[str, Any]] = []
        for lane in lanes:
            records += [lane.record(), *([lane.pending] if lane.pending is not None else [])]
        if ended is not None:
            records.append({"ended_as": list(ended)})
        self._lines, self._appended = [msgspec.json.encode(record) for record in records], 0
        if self._path is None:
            return
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(b"".join(line + b"\n" for line in self._lines))
            beside.replace(self._path)
        except OSError as error:
            self._fall_back(error)

    def _records(self) -> Iterable[dict[str, Any]]:
        for line in self._lines:
            try:
                record = msgspec.json.decode(line)
            except msgspec.DecodeError:
                return  # cut by a crash, before its batch was sent
            yield record

    def _fall_back(self, error: OSError) -> None:
        self.trouble = (
            f"{self._path}: cannot be written ({error.strerror or error}): after a restart the log is read as a new attempt; "
            "set GRADWATCH_DIR to a folder that can be written"
        )
        self._path = None


def _lock(stream: BinaryIO) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _lane(record: dict[str, Any]) -> Lane:
    lane = Lane(record["lane"], record["run"], record["attempt"], record["launch"])
    lane.process, lane.base, lane.beginning, lane.ended = (record[name] for name in ("process", "base", "beginning", "ended"))
    lane.apply(record)
    return lane
