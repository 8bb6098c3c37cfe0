"""Follows whatever logs lie, or will lie, at a path: a file, or a folder with all that is below it."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gradwatch.client.transport import Transport
from gradwatch.follow.follower import END_SECONDS, FAILED, REFUSED, FileStatus, Follower, file_key
from gradwatch.follow.growing import Signature, signature
from gradwatch.importers.names import run_name
from gradwatch.importers.reader import looks_like_log, newest_states

SCAN_SECONDS = 1.0
TEND_SECONDS = 0.3
MAX_FILES = 10_000
MAX_FOLLOWED = 32
"""Files that are followed at once, each by a thread."""
REST_SECONDS = 5.0
"""A file that has been idle for so long makes room for one that changes, where too many are followed."""
EMPTY_SECONDS = 60.0
"""A file that has no metric and has been idle for so long is looked at only when it changes."""
RETRY_SECONDS = 30.0
"""After the collector refused a file, or it could not be read."""


class FolderFollower:
    """Follows a file, or every log below a folder, from `start` to `stop`; the path need not be there yet.

    `name` takes the place of the file's name in the runs' names; `exclude` are folders that are left alone; see `Follower` for the
    rest. Nothing is raised: what goes wrong is in `statuses` and `trouble`.
    """

    def __init__(
        self,
        path: Path,
        transport: Transport,
        project: str = "default",
        name: str | None = None,
        *,
        memory: Path | None = None,
        exclude: Sequence[Path] = (),
        end_after: float = END_SECONDS,
    ) -> None:
        self.path = path
        self.trouble = ""
        self._transport, self._project, self._name = transport, project, name
        self._memory, self._end_after = memory, end_after
        self._exclude = {str(one.absolute().resolve()) for one in (*exclude, *([memory] if memory else []))}
        self._followers: dict[str, Follower] = {}
        self._tried: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow what is there, and what comes."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=f"follow {self.path.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following; every run stays as it is, and a later following goes on."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until all is stopped, at most `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        threads = [self._thread, *list(self._followers.values())]
        for one in threads:
            if one is not None:
                one.join(None if end is None else max(0.0, end - time.monotonic()))

    def statuses(self) -> list[FileStatus]:
        """How far each file is, by path."""
        return sorted((one.status() for one in list(self._followers.values())), key=lambda one: one.path)

    def _run(self) -> None:
        scanned = -SCAN_SECONDS
        while not self._stop.is_set():
            if time.monotonic() - scanned >= SCAN_SECONDS:
                self._scan()
                scanned = time.monotonic()
            self._tend()
            self._stop.wait(TEND_SECONDS)
        for one in self._followers.values():
            one.stop()

    def _scan(self) -> None:
        """Take note of the files that are there."""
        files, self.trouble = logs_below(self.path, self._exclude)
        for file in files:
            key = file_key(file)
            known = self._followers.get(key)
            if known is None:
                self._followers[key] = self._follower(file)
            elif known.path != file:
                known.path = file  # the same run's next checkpoint

    def _follower(self, file: Path) -> Follower:
        return Follower(file, self._transport, self._project, self._namer(file), memory=self._memory, end_after=self._end_after)

    def _namer(self, file: Path) -> Callable[[str], str]:
        given = self._name
        if given is None:
            return lambda run: run_name(file, run)
        if file == self.path:
            return lambda run: f"{given}/{run_name(file, run)}" if run else given
        return lambda run: f"{given}/{run_name(file, run)}"

    def _tend(self) -> None:
        """Start what has changed, the newest first, and let rest what has not where there are too many."""
        alive = [one for one in self._followers.values() if one.alive]
        for one in alive:
            if one.idle_seconds > EMPTY_SECONDS and not one.rows:
                one.stop()
        due = sorted(((found, key) for key in self._followers if (found := self._due(key)) is not None), key=_newest_first)
        room = MAX_FOLLOWED - len(alive)
        for _, key in due[: max(room, 0)]:
            self._tried[key] = time.monotonic()
            self._followers[key].start()
        self._make_room(alive, len(due) - room)

    def _due(self, key: str) -> Signature | None:
        """The file's signature, where it is to be read and is not followed yet."""
        one = self._followers[key]
        if one.alive:
            return None
        now = signature(one.path)
        if one.state in (REFUSED, FAILED) and time.monotonic() - self._tried.get(key, 0.0) < RETRY_SECONDS:
            return None
        return now if now != one.seen else None

    def _make_room(self, alive: list[Follower], wanted: int) -> None:
        quiet = sorted((one for one in alive if one.idle_seconds > REST_SECONDS), key=lambda one: -one.idle_seconds)
        for one in quiet[: max(wanted, 0)]:
            one.stop()


def _newest_first(due: tuple[Signature, str]) -> int:
    return -due[0].changed


def logs_below(path: Path, exclude: set[str]) -> tuple[list[Path], str]:
    """The files at a path that may be logs, as `find_logs` has them, and what kept from finding more."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        return [], f"{path}: waiting for it ({getattr(error, 'strerror', None) or error})"
    if stat.S_ISREG(mode):
        return [path], ""
    if not stat.S_ISDIR(mode):
        return [], f"{path}: neither a file nor a folder; follow the file that it is saved to"
    files: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and not _excluded(folder, one, exclude))
        for name in sorted(names):
            file = Path(folder, name)
            if looks_like_log(file.relative_to(path)) and _is_file(file):
                files.append(file)
        if len(files) >= MAX_FILES:
            return newest_states(
                files[:MAX_FILES]
            ), f"{path}: more than {MAX_FILES:,} files may be logs; name a folder further down"
    return newest_states(files), ""


def _excluded(folder: str, name: str, exclude: set[str]) -> bool:
    return bool(exclude) and str(Path(folder, name).resolve()) in exclude


def _is_file(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except (OSError, ValueError):
        return False
