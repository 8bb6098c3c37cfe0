"""The boundary between a hook and the training step: what fails behind it is told once, counted, and never raised."""

from __future__ import annotations

from types import TracebackType

from gradwatch.client.notices import Notices


class Guard:
    """Runs our code inside a user's step. Under pytest an error is raised, so that nobody's tests hide a mistake.

    `failures` counts what was swallowed. A guard may stand in for another by sharing its `notices`.
    """

    def __init__(self, notices: Notices | None = None) -> None:
        self.notices = notices if notices is not None else Notices()

    @property
    def failures(self) -> int:
        """How many errors were swallowed."""
        return self.notices.troubles

    def within(self, where: str) -> Step:
        """A `with` block that an error ends, and does not leave: `where` names it in the log."""
        return Step(self.notices, where)


class Step:
    """One guarded block."""

    __slots__ = ("_notices", "_where")

    def __init__(self, notices: Notices, where: str) -> None:
        self._notices = notices
        self._where = where

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Swallow an error, but no interrupt and no exit."""
        if not isinstance(error, Exception):
            return False
        self._notices.caught(self._where, error)
        return True
