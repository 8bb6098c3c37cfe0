"""`gradwatch up`: the collector, its page and what it follows, in one process on one port."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradwatch.settings import load_settings


def up_command(
    data: Annotated[Path | None, typer.Option("--data", help="folder of the store (GRADWATCH_DATA)")] = None,
    host: Annotated[str, typer.Option("--host", help="address to listen at; beyond this machine a key is needed")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0 takes a free one", min=0, max=65535)] = 8420,
    follow: Annotated[list[Path] | None, typer.Option("--follow", help="log or folder to follow; may be repeated")] = None,
    project: Annotated[str | None, typer.Option("--project", help="the project of the followed runs (GRADWATCH_PROJECT)")] = None,
) -> None:
    """Run the collector with its page until Ctrl-C. Training processes log to it; `--follow` reads growing logs as well."""
    # The server and the page take half a second to import, which no other command should pay.
    from gradwatch.cli.following import Teller, following  # noqa: PLC0415
    from gradwatch.cli.service import service  # noqa: PLC0415
    from gradwatch.collector.inprocess import Direct  # noqa: PLC0415
    from gradwatch.collector.server import server  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = load_settings(data=data, project=project)
    console = Console(highlight=False, soft_wrap=True)
    with service(settings, host, port) as one, ExitStack() as stack:
        console.print(f"gradwatch [bold]{one.url}[/]  (store {settings.data.resolve()})")
        console.print(f"trainings log to it with [dim]GRADWATCH_URL={one.url}[/]; Ctrl-C ends it", style="dim")
        transport = Direct(one.collector)
        for path in follow or ():
            stack.enter_context(following(path, transport, settings, Teller(console, one.collector, one.url)))
        server(one.app).run([one.listener])
