"""The commands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gradwatch import __version__
from gradwatch.cli.best import best_command
from gradwatch.cli.follow import follow_command
from gradwatch.cli.ingest import ingested
from gradwatch.cli.kept import export_command, findings_command, runs_command
from gradwatch.cli.options import Format, FormatOption
from gradwatch.cli.progress import reading
from gradwatch.cli.report import Report, as_json, diagnose
from gradwatch.cli.stored import import_runs, opened
from gradwatch.cli.sync import sync_command
from gradwatch.cli.text import show, tamed
from gradwatch.cli.up import up_command
from gradwatch.errors import BusyStoreError, GradwatchError, UnreadableLogError
from gradwatch.importers.names import storable
from gradwatch.importers.reader import find_logs
from gradwatch.settings import load_settings

HEALTHY, FINDINGS, UNREADABLE = 0, 1, 2
SHOWN_ERRORS = 3

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gradient-health diagnostics for multi-agent LLM training: what is going wrong, since which step, in which role.",
)


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
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="logs, or folders to search for logs")],
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
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="logs, or folders to search for logs")],
    project: Annotated[str | None, typer.Option("--project", help="the project of the runs (GRADWATCH_PROJECT)")] = None,
    run: Annotated[str | None, typer.Option("--run", help="the run's name, where the paths hold one run")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="folder of the store (GRADWATCH_DATA)")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Keep training logs in the store, diagnosed. A file that was imported before is recognised by its content.

    What can be read is imported; exit code 2 where a log could not be read.
    """
    settings = load_settings(project=project, data=data)
    told: list[dict[str, Any]] = []

    def read(file: Path) -> None:
        with (
            reading(file) as progress,
            ingested(file, storable(settings.project), progress) as done,
            opened(settings.data) as store,
        ):
            told.extend(import_runs(done, store, None if run is None else storable(run)))

    errors: list[GradwatchError] = []
    try:
        for path in paths:
            errors += _read_logs(path, read)
    except BusyStoreError as trouble:
        errors.append(GradwatchError(f"{trouble}; a collector that has it takes the log from `gradwatch follow PATH`"))
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


app.command("runs")(runs_command)
app.command("findings")(findings_command)
app.command("export")(export_command)
app.command("best")(best_command)
app.command("up")(up_command)
app.command("follow")(follow_command)
app.command("sync")(sync_command)


def _complain(error: GradwatchError) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print("gradwatch:", tamed(str(error)), style="red", markup=False)
