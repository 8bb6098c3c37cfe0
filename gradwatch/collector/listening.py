"""Who is called when points of a run are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class Listeners:
    """Callbacks by run, called on the writer's thread: they must neither wait nor raise. Safe to use from several threads."""

    def __init__(self) -> None:
        self._of_run: dict[str, list[Callable[[], None]]] = {}
        self._owner = Lock()

    @contextmanager
    def listening(self, run: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` after every commit of the run, as long as the block lasts."""
        with self._owner:
            self._of_run.setdefault(run, []).append(wake)
        try:
            yield
        finally:
            with self._owner:
                self._of_run[run].remove(wake)
                if not self._of_run[run]:
                    del self._of_run[run]

    def notify(self, run: str) -> None:
        """Call the run's listeners."""
        if self._of_run:
            with self._owner:
                waiting = list(self._of_run.get(run, ()))
            for wake in waiting:
                wake()
