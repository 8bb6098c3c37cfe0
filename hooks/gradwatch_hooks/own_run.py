"""The run of a logger that a framework drives: the user's, or one of its own that it opens at its first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradwatch
from gradwatch.client.run import Run
from gradwatch.client.text import error_line
from gradwatch.schema import FAILED, INTERRUPTED


class OwnRun:
    """`settings` are those of `gradwatch.init`. What is known of the configuration when the run is opened becomes the run's own."""

    def __init__(self, run: Run | None, settings: Mapping[str, Any]) -> None:
        self._run = run
        self._settings = dict(settings)
        self._is_given = run is not None

    @property
    def run(self) -> Run:
        """The run. Raises SettingsError where it cannot be opened."""
        if self._run is None:
            self._run = gradwatch.init(**self._settings)
        return self._run

    def configure(self, values: Mapping[str, Any]) -> None:
        """Settings of the training; those that come once the run is open become an event."""
        if self._run is None:
            self._settings["config"] = {**(self._settings.get("config") or {}), **values}
        else:
            self._run.log_event("configuration", kind="config", facts=values)

    def flush(self) -> None:
        """Wait until what was logged is durable."""
        if self._run is not None:
            self._run.flush()

    def finish(self) -> None:
        """End the run; that of the user's is theirs to end."""
        if self._run is not None and not self._is_given:
            self._run.finish()
        elif self._run is not None:
            self._run.flush()


def mark_end(run: Run, error: BaseException) -> None:
    """A training ends by this error: its run will end no better than as failed, or as interrupted."""
    run.mark(INTERRUPTED if is_interrupt(error) else FAILED, error_line(error))


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody stopped the program: Ctrl-C, SIGTERM, `sys.exit`."""
    return isinstance(error, KeyboardInterrupt | SystemExit)
