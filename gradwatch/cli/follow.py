"""`gradwatch follow`: a growing log, read live, with no change to the training code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from gradwatch.cli.asking import collector_runs
from gradwatch.client.flag import Flag
from gradwatch.client.query import Query
from gradwatch.client.transport import Transport
from gradwatch.settings import Settings, load_settings


def follow_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="logs, or folders of logs; they need not be there yet")],
    project: Annotated[str | None, typer.Option("--project", help="the project of the runs (GRADWATCH_PROJECT)")] = None,
    run: Annotated[str | None, typer.Option("--run", help="the run's name instead of the file's")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="keep the runs in this folder, without a collector")] = None,
) -> None:
    """Read logs while they are being written, until Ctrl-C, and print what is found.

    The runs go to the collector at GRADWATCH_URL, or into the store in GRADWATCH_DATA where none answers.
    """
    from gradwatch.cli.following import Teller, following  # noqa: PLC0415

    settings = load_settings(project=project, data=data)
    console = Console(highlight=False)
    with _goal(settings, alone=data is not None) as goal, ExitStack() as stack:
        console.print(f"[dim]{goal.words}; Ctrl-C ends it[/]", soft_wrap=True)
        for path in paths:
            stack.enter_context(following(path, goal.transport, settings, Teller(console, goal.query, goal.page), run))
        until_told()


class _Goal(NamedTuple):
    transport: Transport
    query: Query
    page: str
    words: str


@contextmanager
def _goal(settings: Settings, alone: bool) -> Iterator[_Goal]:
    """The collector that answers, else a store of this process's own."""
    if not alone and collector_runs(settings.url):
        from gradwatch.client.http_query import HttpQuery  # noqa: PLC0415
        from gradwatch.client.http_transport import HttpTransport  # noqa: PLC0415

        with (
            closing(HttpTransport(settings.url, settings.api_key)) as transport,
            HttpQuery(settings.url, settings.api_key) as query,
        ):
            yield _Goal(transport, query, settings.url, f"sending to the collector at {settings.url}")
        return
    from gradwatch.collector.inprocess import InProcess  # noqa: PLC0415

    why = "" if alone else f"no collector answers at {settings.url}: "
    with closing(InProcess(settings.data)) as store:
        yield _Goal(store, store.query, "", f"{why}keeping the runs in {settings.data}")


def until_told() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    with told_to_end() as told:
        while not told.wait(3600):
            pass


@contextmanager
def told_to_end() -> Iterator[Flag]:
    """A flag that Ctrl-C and SIGTERM raise as long as the block lasts, instead of an error in whatever is under way."""
    told = Flag()

    def tell(_signal: int, _frame: FrameType | None) -> None:
        told.set()

    before = [(one, signal.signal(one, tell)) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield told
    finally:
        for one, handler in before:
            signal.signal(one, handler)
