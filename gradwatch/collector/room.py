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

    def take(self, count: int, own: int = 0) -> None:
        """Count bytes in; UnavailableError where they have no room now.

        What is larger than the limit has room when nothing waits beside the `own` bytes that belong to it.
        """
        with self._owner:
            if self._taken > own and self._taken + count > self.limit:
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


class Hold:
    """The bytes of one request, counted as they come, until the block ends."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._count = 0

    def reach(self, count: int) -> None:
        """The request has this many bytes by now; UnavailableError where they have no room."""
        if count > self._count:
            self._room.take(count - self._count, self._count)
            self._count = count

    def __enter__(self) -> Hold:
        """The hold itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Count the bytes out."""
        self._room.give(self._count)
