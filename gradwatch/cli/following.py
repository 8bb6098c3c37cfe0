"""Follows logs for a command: what is read, and what is found in it, is printed as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from rich.console import Console
from rich.text import Text

from gradwatch.cli.text import STYLES, tamed
from gradwatch.client.query import Query
from gradwatch.client.transport import Transport
from gradwatch.errors import GradwatchError
from gradwatch.follow.folder import FolderFollower
from gradwatch.importers.names import storable
from gradwatch.schema import StoredFinding
from gradwatch.settings import Settings

LOOK_SECONDS = 0.5
STOP_SECONDS = 10.0


class Teller:
    """Prints what is new: files that are followed, warnings about them, and findings."""

    def __init__(self, console: Console, query: Query, page: str = "") -> None:
        self._console = console
        self._query = query
        self._page = page
        self._said: set[str] = set()

    def tell(self, follower: FolderFollower) -> None:
        """Print what came since the last call."""
        if follower.trouble:
            self._once(follower.trouble, Text(tamed(follower.trouble), "yellow"))
        sources = set()
        for one in follower.statuses():
            sources.add(storable(str(one.path.absolute())))
            for trouble in (one.trouble, *one.warnings):
                if trouble:
                    self._once(f"{one.path}: {trouble}", Text(f"{one.path.name}: {tamed(trouble)}", "dim"))
        for state in self._query.states() if sources else ():
            if state.info.source in sources:
                self._run(state.info.id, state.info.name, state.info.format)

    def _run(self, run: str, name: str, format: str) -> None:
        page = f"  {self._page}/runs/{run}" if self._page else ""
        self._once(run, Text.assemble("following ", (tamed(name), "bold"), f" ({format}){page}"))
        for found in self._query.findings(run):
            self._once(found.id, finding_line(tamed(name), found))

    def _once(self, key: str, text: Text) -> None:
        if key not in self._said:
            self._said.add(key)
            self._console.print(text, soft_wrap=True)


def finding_line(name: str, found: StoredFinding) -> Text:
    """A finding on one line."""
    one = found.finding
    return Text.assemble(
        f"{name}  step {one.start_step:,}  ",
        (f"{one.severity} ", STYLES[one.severity]),
        (one.kind, "bold"),
        f"  {tamed(one.message)}",
    )


@contextmanager
def following(
    path: Path, transport: Transport, settings: Settings, teller: Teller, name: str | None = None
) -> Iterator[FolderFollower]:
    """Follow a path as long as the block lasts, and tell of it."""
    follower = FolderFollower(
        path, transport, settings.project, name, memory=settings.dir, exclude=[settings.data], end_after=settings.end_seconds
    )
    ended = Event()
    thread = Thread(target=_tell, args=(follower, teller, ended), name="tell", daemon=True)
    follower.start()
    thread.start()
    try:
        yield follower
    finally:
        follower.stop()
        follower.join(STOP_SECONDS)
        ended.set()
        thread.join()


def _tell(follower: FolderFollower, teller: Teller, ended: Event) -> None:
    last = False
    while not last:
        last = ended.wait(LOOK_SECONDS)
        with suppress(GradwatchError):  # a collector that is away for a moment
            teller.tell(follower)
