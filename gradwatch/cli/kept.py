"""`gradwatch runs`, `findings` and `export`: what is kept, asked of the collector or read from the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradwatch.cli.asking import asked, find_run
from gradwatch.cli.options import DataOption, Format, FormatOption, RunArgument
from gradwatch.cli.report import finding_json, report
from gradwatch.cli.text import STYLES, show, tamed
from gradwatch.schema import RunState


def runs_command(
    project: Annotated[str | None, typer.Option("--project", help="only this project's runs")] = None,
    data: DataOption = None,
    format: FormatOption = Format.text,
) -> None:
    """List the runs, newest first, with their health."""
    with asked(data) as query:
        states = query.states(project)
    if format is Format.json:
        typer.echo(json.dumps({"runs": [_as_json(one) for one in states]}))
        return
    if not states:
        typer.echo("no runs yet" if project is None else tamed(f"no runs of the project {project!r}"))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "name", "project", "status", "step", "health"):
        table.add_column(name, justify="right" if name == "step" else "left", overflow="fold")
    for one in states:
        names = [escape(tamed(text)) for text in (one.info.id, one.info.name, one.info.project, one.status)]
        step = "" if one.last_step is None else f"{one.last_step:,}"
        table.add_row(*names, step, f"[{STYLES.get(one.health, 'green')}]{one.health}[/]")
    Console(highlight=False).print(table)


def _as_json(one: RunState) -> dict[str, Any]:
    info = {name: getattr(one.info, name) for name in ("id", "name", "project", "source", "format", "rows", "created")}
    stands = {name: getattr(one, name) for name in ("status", "attempt", "last_step", "last_update", "sequence")}
    return info | stands | {"findings": sum(one.findings.values()) + sum(one.resolved.values()), "health": one.health}


def findings_command(run: RunArgument, data: DataOption = None, format: FormatOption = Format.text) -> None:
    """Show what was found in a run."""
    with asked(data) as query:
        info = find_run(query, run).info
        stored = query.findings(info.id)
        shown = report(query, info)
    if format is Format.text:
        show(Console(highlight=False), shown)
        return
    listed = [
        {"id": one.id, "status": one.status, "false_alarm": one.false_alarm, **finding_json(one.finding, shown.epochs)}
        for one in stored
    ]
    typer.echo(json.dumps({"findings": listed}, allow_nan=False))


def export_command(
    run: RunArgument,
    to: Annotated[Path, typer.Option("--to", help="a .parquet or .csv file")],
    data: DataOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Write a run's points, rewrites included, to Parquet or CSV."""
    from gradwatch.store.export import export_points  # noqa: PLC0415 (the engines, which no other command here needs)

    with asked(data) as query:
        count = export_points((block for _, block in query.replay(find_run(query, run).info.id)), to)
    typer.echo(json.dumps({"file": str(to), "points": count}) if format is Format.json else f"{count:,} points written to {to}")
