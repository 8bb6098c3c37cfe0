"""What the collector has done since it started, as counts that never fall."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

ERRORS = ("store", "watcher", "request")
REFUSALS: Mapping[int, str] = {
    400: "malformed",
    401: "unauthorised",
    403: "forbidden",
    404: "unknown",
    409: "conflict",
    413: "too_large",
    415: "unsupported",
    429: "busy",
}
OTHER = "other"


class Counts:
    """Points, batches and commits are counted by the writer alone; refusals and errors by any thread."""

    def __init__(self) -> None:
        self.points = 0
        self.batches = 0
        self.duplicates = 0
        self.commits = 0
        self.commit_seconds = 0.0
        self._refused = dict.fromkeys((*REFUSALS.values(), OTHER), 0)
        self._errors = dict.fromkeys(ERRORS, 0)
        self._owner = Lock()

    def refuse(self, status: int) -> None:
        """A request was answered with this HTTP status, 400 or above."""
        with self._owner:
            self._refused[REFUSALS.get(status, OTHER)] += 1

    def fail(self, kind: str) -> None:
        """Something of `ERRORS` went wrong inside."""
        with self._owner:
            self._errors[kind] += 1

    @property
    def refused(self) -> dict[str, int]:
        """Refused requests by reason."""
        return dict(self._refused)

    @property
    def errors(self) -> dict[str, int]:
        """Errors by kind."""
        return dict(self._errors)
