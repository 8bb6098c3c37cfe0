"""When to try the collector again after it failed."""

from __future__ import annotations

import random
import time

FIRST, MOST = 0.5, 10.0
MOST_ASKED = 300.0
"""The longest `Retry-After` that is honoured, in seconds."""


class Backoff:
    """Waits twice as long after each failure, with jitter so that many processes do not come back at once."""

    def __init__(self) -> None:
        self._seconds = FIRST
        self._until = 0.0
        self.is_asked = False

    @property
    def remaining(self) -> float:
        """Seconds until the next try; 0 where one may be made now."""
        return max(self._until - time.monotonic(), 0.0)

    def failed(self, asked: float | None = None) -> None:
        """A try failed; the collector may have asked for a wait of some seconds."""
        pause = self._seconds * random.uniform(0.5, 1.0)
        if asked is not None:
            pause = min(asked, MOST_ASKED) + random.uniform(0.0, 0.2)
        self.is_asked = asked is not None
        self._until = time.monotonic() + pause
        self._seconds = min(self._seconds * 2, MOST)

    def succeeded(self) -> None:
        """A try succeeded."""
        self._seconds, self._until, self.is_asked = FIRST, 0.0, False

    def hurry(self) -> None:
        """Allow a try now, unless the collector asked for a wait."""
        if not self.is_asked:
            self._until = 0.0
