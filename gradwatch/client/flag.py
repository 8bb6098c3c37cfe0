"""A flag between threads that a signal's handler may raise or wait for, whatever call of ours it has interrupted."""

from __future__ import annotations

import threading


class Flag:
    """As `threading.Event`, whose own lock would have a handler wait for the code that it interrupted, for ever."""

    def __init__(self) -> None:
        self._down = threading.Lock()
        self._down.acquire()

    def set(self) -> None:
        """Raise the flag."""
        try:
            self._down.release()
        except RuntimeError:
            # It was up already.
            return

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return not self._down.locked()

    def take(self, seconds: float) -> bool:
        """Wait until the flag is up, and take it down; whether it was."""
        return self._down.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is up; whether it is."""
        was_up = self.take(seconds)
        if was_up:
            self.set()
        return was_up
