"""The commands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradwatch import __version__
from gradwatch.cli.ingest import ingested, storable
from gradwatch.cli.progress import reading
from gradwatch.cli.report import Report, as_json, diagnose, finding_json, report
from gradwatch.cli.stored import DEFAULT_DATA, existing, find_run, import_runs, opened
from gradwatch.cli.text import STYLES, show, tamed
from gradwatch.errors import GradwatchError, UnreadableLogError
from gradwatch.importers.reader import find_logs
from gradwatch.schema import StoredFinding

HEALTHY, FINDINGS, UNREADABLE = 0, 1, 2
SHOWN_ERRORS = 3

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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a curve in a terminal that has no block characters
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

    def read(file: Path) -> None:
        with reading(file) as progress:
            reports.extend(diagnose(file, progress))

    errors = [error for path in paths for error in _read_logs(path, read)]
    for error in errors:
        _complain(error)
    if reports or format is Format.json:
        _write(reports, format, out)
    if errors:
        raise typer.Exit(UNREADABLE)
    raise typer.Exit(FINDINGS if any(one.sick for one in reports) else HEALTHY)


def _read_logs(path: Path, read: Callable[[Path], None]) -> list[UnreadableLogError]:
    """Read the logs under a path; return what could not be read. In a folder, files that hold no log may stand beside one."""
    try:
        files = find_logs(path)
    except UnreadableLogError as error:
        return [error]
    errors: list[UnreadableLogError] = []
    for file in files:
        try:
            read(file)
        except UnreadableLogError as error:
            errors.append(error)
    if files == [path] or len(files) == 1:
        return errors
    return [_none_readable(path, errors)] if len(errors) == len(files) else []


def _none_readable(folder: Path, errors: list[UnreadableLogError]) -> UnreadableLogError:
    first = "; ".join(str(error) for error in errors[:SHOWN_ERRORS])
    more = f"; and {len(errors) - SHOWN_ERRORS} more" if len(errors) > SHOWN_ERRORS else ""
    return UnreadableLogError(f"{folder}: none of the {len(errors)} files that look like logs can be read ({first}{more})")


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
    """Keep training logs in the store, diagnosed. A file that was imported before is recognised by its content.

    What can be read is imported; exit code 2 where a log could not be read.
    """
    told: list[dict[str, Any]] = []

    def read(file: Path) -> None:
        with reading(file) as progress, ingested(file, storable(project), progress) as done, opened(data) as store:
            told.extend(import_runs(done, store, None if run is None else storable(run)))

    errors: list[GradwatchError] = []
    try:
        for path in paths:
            errors += _read_logs(path, read)
    except GradwatchError as trouble:  # of the store, which concerns the files that follow as well
        errors.append(trouble)
    for error in errors:
        _complain(error)
    if format is Format.json:
        typer.echo(json.dumps({"runs": told}))
    for one in told if format is Format.text else ():
        state = "imported" if one["new"] else "already there"
        line = f"{one['id']}  {one['name']}  {one['rows']:,} rows, {one['findings']} findings  ({state}, project {one['project']})"
        typer.echo(tamed(line))
    if errors:
        raise typer.Exit(UNREADABLE)


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
        names = [escape(tamed(text)) for text in (one.id, one.name, one.project, one.format)]
        table.add_row(*names, f"{one.rows:,}", f"[{STYLES.get(health, 'green')}]{health}[/]")
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
    Console(stderr=True, highlight=False, soft_wrap=True).print("gradwatch:", tamed(str(error)), style="red", markup=False)
