"""Ends of a process that nobody announced: exit, an uncaught exception, Ctrl-C, SIGTERM; and forks."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Protocol

from gradwatch.client.identity import parent_pid
from gradwatch.client.text import error_line
from gradwatch.schema import FAILED, FINISHED, INTERRUPTED


class Ending(Protocol):
    """A run, as far as the end of its process goes."""

    def mark(self, status: str, message: str) -> None:
        """The process is about to end as `status`."""

    def finish(self, status: str = ...) -> None:
        """End the process's part."""

    def after_fork(self) -> None:
        """Go on as a forked child."""


class _State:
    """What is installed in this process."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.newest: Any = None
        self.kept: list[object] = []
        self.is_installed = False
        self.finalized_in = 0
        self.next_hook: Any = None


_STATE = _State()


def remember(run: Ending) -> None:
    """The run is active in this process: its end is ours to see."""
    _STATE.runs.append(run)
    _STATE.newest = run
    if not _STATE.is_installed:
        _STATE.is_installed = True
        atexit.register(_finish_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)
        _STATE.next_hook, sys.excepthook = sys.excepthook, _on_exception
    _install_handler()


def forget(run: Ending) -> None:
    """The run has ended in this process."""
    if run in _STATE.runs:
        _STATE.runs.remove(run)


def active() -> list[Any]:
    """The active runs of this process and those that are ending, the newest last."""
    return list(_STATE.runs)


def newest() -> Any:
    """The newest active run, else the one that was opened last; None before the first."""
    return _STATE.runs[-1] if _STATE.runs else _STATE.newest


def keep_forever(inherited: object) -> None:
    """Keep what a forked child inherited from being destroyed there: its sockets are the parent's."""
    _STATE.kept.append(inherited)


def watch_exit() -> None:
    """In a child of multiprocessing, which skips `atexit`, have its own finalizers end the runs."""
    if parent_pid() is not None and _STATE.finalized_in != os.getpid():
        from multiprocessing import util  # noqa: PLC0415 - loaded already in such a child

        _STATE.finalized_in = os.getpid()
        util.Finalize(None, _finish_all, exitpriority=100)


def _finish_all(status: str = FINISHED) -> None:
    """End every run; the time that one may take is all that they have together."""
    runs = active()
    deadline = time.monotonic() + max((run.flush_seconds for run in runs), default=0.0)
    for run in runs:
        run.finish(status, within=min(run.flush_seconds, deadline - time.monotonic()))


def _after_fork() -> None:
    for run in active():
        run.after_fork()


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    status = INTERRUPTED if issubclass(kind, KeyboardInterrupt) else FAILED
    for run in active():
        run.mark(status, error_line(error))
    _STATE.next_hook(kind, error, trace)


def _install_handler() -> None:
    """Handle SIGTERM unless somebody ignores it, or handles it outside of Python."""
    if threading.current_thread() is not threading.main_thread():
        return
    present = signal.getsignal(signal.SIGTERM)
    if not isinstance(present, _OnTerm) and (present is signal.SIG_DFL or callable(present)):
        signal.signal(signal.SIGTERM, _OnTerm(present))


class _OnTerm:
    """A handler that logs the end, then does what `before` would have done without us: its own work, or the default death.

    Each one knows its own `before`: a handler of the user's may stand between two of them and call the one below it.
    """

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for run in active():
            run.mark(INTERRUPTED, "SIGTERM")
        if callable(self._before):
            self._before(number, frame)
            return
        _finish_all(INTERRUPTED)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
