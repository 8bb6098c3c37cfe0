"""What the client says to the user: a few lines on stderr, warnings once each, and errors of ours that must not reach training."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

LOGGER = logging.getLogger("gradwatch")
MOST_KINDS = 1000
"""Different warnings that are shown; a program that makes up a key a step does not fill its log."""

P = ParamSpec("P")
T = TypeVar("T")


class Notices:
    """Says things at most once each. `quiet` leaves out the lines of normal operation, never the warnings."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.troubles = 0
        self._said: set[str] = set()

    def say(self, line: str) -> None:
        """One line of normal operation."""
        if not self.quiet:
            print_line(line)

    def once(self, about: str, message: str) -> None:
        """A warning, the first time that `about` comes up."""
        if self._is_new(about):
            LOGGER.warning("gradwatch: %s", message)

    def trouble(self, where: str, error: Exception) -> None:
        """An error of ours or of a call to us: counted, and shown once with its traceback."""
        self.troubles += 1
        if self._is_new(f"{where}:{type(error).__name__}"):
            LOGGER.error("gradwatch: %s failed and was skipped (shown once)", where, exc_info=error)

    def caught(self, where: str, error: Exception) -> None:
        """An error in the caller's thread: told, and under pytest raised, so that nobody's tests hide a mistake."""
        self.trouble(where, error)
        if "PYTEST_CURRENT_TEST" in os.environ:
            raise error

    def _is_new(self, about: str) -> bool:
        if about in self._said or len(self._said) >= MOST_KINDS:
            return False
        self._said.add(about)
        return True


class Speaker(Protocol):
    """Whatever has notices."""

    notices: Notices


S = TypeVar("S", bound=Speaker)


def harmless(default: T) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """A method that never raises: an error is told through the object's notices, and the call returns `default`."""

    def wrap(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @functools.wraps(method)
        def safe(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the client boundary
                self.notices.caught(f"{type(self).__name__}.{method.__name__}", error)
            return default

        return safe

    return wrap


def print_line(line: str) -> None:
    """A line on stderr, or nothing where stderr is closed, gone or in use by the code that a signal interrupted."""
    stream: Any = sys.stderr
    if stream is None:
        return
    try:
        stream.write(f"gradwatch: {line}\n")
        stream.flush()
    except (OSError, ValueError, RuntimeError):
        return
