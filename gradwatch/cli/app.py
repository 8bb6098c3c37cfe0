"""The commands."""

from __future__ import annotations

import io
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gradwatch import __version__
from gradwatch.cli.ingest import ingested
from gradwatch.cli.progress import reading
from gradwatch.cli.report import Report, as_json, diagnose, finding_json, report
from gradwatch.cli.stored import DEFAULT_DATA, existing, find_run, import_runs
from gradwatch.cli.text import STYLES, show
from gradwatch.errors import GradwatchError, UnreadableLogError
from gradwatch.importers.reader import find_logs
from gradwatch.schema import StoredFinding
from gradwatch.store import open_store

HEALTHY, FINDINGS, UNREADABLE = 0, 1, 2

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gradient-health diagnostics for multi-agent LLM training: what is going wrong, since which step, in which role.",
)


class Format(StrEnum):
    """How a command answers."""

    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs")]
DataOption = Annotated[Path, typer.Option("--data", envvar="GRADWATCH_DATA", help="folder of the store")]


def main() -> None:
    """Run the command line; errors of ours are printed as one message, with exit code 2."""
    try:
        app()
    except GradwatchError as error:
        _complain(error)
        sys.exit(UNREADABLE)
    except BrokenPipeError:  # `gradwatch … | head`
        sys.stderr.close()
        sys.exit(HEALTHY)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    """What every command shares."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("diagnose")
def diagnose_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="logs, or folders to search for logs")],
    format: FormatOption = Format.text,
    out: Annotated[Path | None, typer.Option("--out", help="write the report to this file")] = None,
) -> None:
    """Say what went wrong in training logs. Exit code: 0 healthy, 1 findings, 2 a log could not be read."""
    reports: list[Report] = []
    errors: list[UnreadableLogError] = []
    for path in paths:
        _diagnose_path(path, reports, errors)
    for error in errors:
        _complain(error)
    if reports:
        _write(reports, format, out)
    if errors:
        raise typer.Exit(UNREADABLE)
    raise typer.Exit(FINDINGS if any(one.sick for one in reports) else HEALTHY)


def _diagnose_path(path: Path, reports: list[Report], errors: list[UnreadableLogError]) -> None:
    """Diagnose the logs under a path. In a folder, files that hold no log are passed over as long as one does."""
    unread: list[UnreadableLogError] = []
    read = 0
    try:
        for file in find_logs(path):
            try:
                with reading(file) as progress:
                    found = diagnose(file, progress)
                reports += found
                read += 1
            except UnreadableLogError as error:
                unread.append(error)
    except UnreadableLogError as error:
        unread.append(error)
    if not (path.is_dir() and read):
        errors += unread


def _write(reports: list[Report], format: Format, out: Path | None) -> None:
    if format is Format.json:
        text = json.dumps({"runs": [as_json(one) for one in reports]}, allow_nan=False)
        if out is None:
            typer.echo(text)
        else:
            _save(out, text + "\n")
        return
    written = io.StringIO()
    console = Console(highlight=False) if out is None else Console(highlight=False, file=written, width=100)
    for one in reports:
        show(console, one)
    if out is not None:
        _save(out, written.getvalue())


def _save(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GradwatchError(f"{out}: cannot be written ({error.strerror}); name a file in a folder that exists") from error


@app.command("import")
def import_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="logs, or folders to search for logs")],
    project: Annotated[str, typer.Option("--project", help="the project that the runs belong to")] = "default",
    run: Annotated[str | None, typer.Option("--run", help="the run's name, where the paths hold one run")] = None,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = Format.text,
) -> None:
    """Keep training logs in the store, diagnosed. A file that was imported before is recognised by its content."""
    told: list[dict[str, Any]] = []
    for file in [file for path in paths for file in find_logs(path)]:
        with reading(file) as progress, ingested(file, project, progress) as done:
            store = open_store(data)
            try:
                told += import_runs(done, store, run)
            finally:
                store.close()
    if format is Format.json:
        typer.echo(json.dumps({"runs": told}))
        return
    for one in told:
        state = "imported" if one["new"] else "already there"
        typer.echo(
            f"{one['id']}  {one['name']}  {one['rows']:,} rows, {one['findings']} findings  ({state}, project {one['project']})"
        )


@app.command("runs")
def runs_command(
    project: Annotated[str | None, typer.Option("--project", help="only this project's runs")] = None,
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = Format.text,
) -> None:
    """List the stored runs, newest first, with their health."""
    with existing(data) as store:
        rows = [(one, store.findings(one.id)) for one in store.runs(project)]
    if format is Format.json:
        listed = [
            {"id": one.id, "name": one.name, "project": one.project, "source": one.source, "format": one.format, "rows": one.rows,
             "created": one.created, "findings": len(found), "health": _health(found)}
            for one, found in rows
        ]  # fmt: skip
        typer.echo(json.dumps({"runs": listed}))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "name", "project", "format", "rows", "health"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for one, found in rows:
        health = _health(found)
        table.add_row(one.id, one.name, one.project, one.format, f"{one.rows:,}", f"[{STYLES.get(health, 'green')}]{health}[/]")
    Console(highlight=False).print(table)


def _health(found: list[StoredFinding]) -> str:
    counted = {one.finding.severity for one in found if not one.false_alarm}
    return "critical" if "critical" in counted else "warning" if "warning" in counted else "healthy"


@app.command("findings")
def findings_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="a run's id or name (then the newest)")],
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = Format.text,
) -> None:
    """Show what was found in a stored run."""
    with existing(data) as store:
        info = find_run(store, run)
        stored = store.findings(info.id)
        shown = report(store, info)
    if format is Format.json:
        listed = [
            {
                "id": one.id,
                "status": one.status,
                "false_alarm": one.false_alarm,
                **finding_json(one.finding, shown.epochs),
            }
            for one in stored
        ]
        typer.echo(json.dumps({"findings": listed}, allow_nan=False))
        return
    show(Console(highlight=False), shown)


@app.command("export")
def export_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="a run's id or name (then the newest)")],
    to: Annotated[Path, typer.Option("--to", help="a .parquet or .csv file")],
    data: DataOption = DEFAULT_DATA,
    format: FormatOption = Format.text,
) -> None:
    """Write a stored run's points, rewrites included, to Parquet or CSV."""
    with existing(data) as store:
        count = store.export(find_run(store, run).id, to)
    typer.echo(json.dumps({"file": str(to), "points": count}) if format is Format.json else f"{count:,} points written to {to}")


def _complain(error: GradwatchError) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print("gradwatch:", str(error), style="red", markup=False)
