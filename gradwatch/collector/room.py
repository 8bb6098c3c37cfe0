"""How many bytes may wait in the collector, so that memory does not grow when clients are faster than the disk."""

from __future__ import annotations

from threading import Lock

from gradwatch.errors import UnavailableError

RETRY_SECONDS = 1.0


class Room:
    """A count of bytes with a limit; safe to use from several threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._owner = Lock()

    @property
    def taken(self) -> int:
        """Bytes that wait now."""
        return self._taken

    def take(self, count: int) -> None:
        """Count bytes in; UnavailableError where they have no room now. What is larger than the limit has room when it is alone."""
        with self._owner:
            if self._taken and self._taken + count > self.limit:
                raise UnavailableError(
                    f"the collector is busy: {self._taken:,} bytes wait for the disk, {count:,} more would pass its limit of "
                    f"{self.limit:,}; send the same batch again",
                    RETRY_SECONDS,
                )
            self._taken += count

    def give(self, count: int) -> None:
        """Count bytes out."""
        with self._owner:
            self._taken -= count
