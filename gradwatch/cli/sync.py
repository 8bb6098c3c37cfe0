"""`gradwatch sync`: what waits in a spool folder, to the collector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from gradwatch.cli.options import Format, FormatOption
from gradwatch.cli.text import tamed
from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.sync import SyncedRun, SyncResult, sync
from gradwatch.client.transport import Transport
from gradwatch.errors import GradwatchError
from gradwatch.settings import Settings, load_settings


def sync_command(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="the spool's folder (GRADWATCH_DIR)")] = None,
    url: Annotated[str | None, typer.Option("--url", help="the collector's address (GRADWATCH_URL)")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="send to the store in this folder, without a collector")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave the files where they are; sent again they add nothing")] = False,
    format: FormatOption = Format.text,
) -> None:
    """Send what training processes left in the spool: runs in mode offline, or with the collector away. Repeat it as you like.

    Exit code 1 where something is left that could not be sent.
    """
    settings = load_settings(dir=folder, url=url)
    if not settings.dir.is_dir():
        raise GradwatchError(f"{settings.dir}: there is no spool; name its folder, or set GRADWATCH_DIR as for the training")
    said = (lambda _: None) if format is Format.json else (lambda line: typer.echo(tamed(line)))
    result = sync(settings.dir, lambda: _goal(settings, data), said, keep)
    if format is Format.json:
        typer.echo(json.dumps(_as_json(result)))
    else:
        for line in _lines(result):
            typer.echo(tamed(line))
    if result.left or any(one.refused or one.damaged for one in result.runs.values()):
        raise typer.Exit(1)


def _goal(settings: Settings, data: Path | None) -> Transport:
    if data is None:
        return HttpTransport(settings.url, settings.api_key)
    from gradwatch.collector.inprocess import InProcess  # noqa: PLC0415

    return InProcess(data)


def _as_json(result: SyncResult) -> dict[str, Any]:
    return {
        "runs": [msgspec.structs.asdict(one) for one in result.runs.values()],
        "alive": [str(one) for one in result.alive],
        "left": {str(path): why for path, why in result.left.items()},
    }


def _lines(result: SyncResult) -> list[str]:
    lines = [_line(one) for one in result.runs.values()]
    lines += [f"{path}: its process still runs and sends it by itself" for path in result.alive]
    lines += [f"{path}: left, {why}" for path, why in result.left.items()]
    return lines or ["nothing waits in the spool"]


def _line(one: SyncedRun) -> str:
    line = f"run {one.run}: {one.points:,} points in {one.batches:,} batches"
    parts = {
        "were there already": one.duplicates,
        "refused and set aside": one.refused,
        "frames damaged and passed over": one.damaged,
    }
    return line + "".join(f", {count:,} {words}" for words, count in parts.items() if count)
