"""`gradwatch best`: the step worth keeping, the checkpoint that was saved for it, and a copy of it."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gradwatch.checkpoints.copying import copy_checkpoint
from gradwatch.checkpoints.selection import Pick, Wish, pick_of_run
from gradwatch.cli.asking import asked, find_run
from gradwatch.cli.options import DataOption, Format, FormatOption, RunArgument
from gradwatch.cli.sparkline import sparkline
from gradwatch.cli.text import tamed
from gradwatch.errors import GradwatchError
from gradwatch.schema import RunInfo


class Mode(StrEnum):
    """Which direction of a metric is better."""

    max = "max"
    min = "min"


def best_command(
    run: RunArgument,
    metric: Annotated[str | None, typer.Option("--metric", help="choose by this metric or key instead")] = None,
    mode: Annotated[Mode | None, typer.Option("--mode", help="whether its largest or its smallest value is best")] = None,
    copy_to: Annotated[Path | None, typer.Option("--copy-to", help="copy the best checkpoint into this folder")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="show the curve, and every saved step with its rating")] = False,
    data: DataOption = None,
    format: FormatOption = Format.text,
) -> None:
    """Say which step of a run is worth keeping and why. Exit code 1 where nothing tells a better step from a worse one."""
    with asked(data) as query:
        info = find_run(query, run).info
        pick = pick_of_run(query, info.id, Wish(metric, mode))
        saved = query.checkpoints(info.id) if explain else []
    copies = _copies(info, pick, copy_to) if copy_to is not None and pick.best is not None else []
    if format is Format.json:
        typer.echo(json.dumps(_as_json(info, pick, copies), allow_nan=False))
    else:
        _show(Console(highlight=False), info, pick, copies)
        if explain and pick.rated is not None:
            _explain(Console(highlight=False), pick, sorted({one.step for one in saved}))
    if pick.best is None:
        raise typer.Exit(1)


def _copies(info: RunInfo, pick: Pick, folder: Path) -> list[Path]:
    if pick.kept is None:
        raise GradwatchError(
            f"run {info.name} has no saved step that could be copied: log them with `run.log_checkpoint(path, step=...)`"
        )
    return [copy_checkpoint(one.uri, folder) for one in pick.kept.checkpoints]


def _as_json(info: RunInfo, pick: Pick, copies: list[Path]) -> dict[str, Any]:
    kept = pick.kept
    found = None
    if kept is not None:
        found = {
            "step": kept.checkpoints[0].step,
            "uris": [one.uri for one in kept.checkpoints],
            "value": kept.value,
            "measured_step": kept.measured,
            "reason": kept.reason,
        }
    best = None if pick.best is None else msgspec.structs.asdict(pick.best)
    return {"run": info.name, "id": info.id, "best": best, "checkpoint": found, "copies": [str(one) for one in copies]}


def _show(console: Console, info: RunInfo, pick: Pick, copies: list[Path]) -> None:
    name = tamed(info.name)
    if pick.best is None:
        console.print(Text(f"{name}: no best step: no held-out metric or reward, or it never changes (name one: --metric)"))
        return
    best = pick.best
    console.print(Text.assemble((f"{name}: best step {best.step:,}", "bold green"), f"  {tamed(best.metric)} = {best.value:.6g}"))
    _indented(console, best.reason)
    if pick.kept is None:
        _indented(console, "no checkpoint of it was logged (run.log_checkpoint(path, step=...))")
    else:
        for one in pick.kept.checkpoints:
            policy = f" ({one.policy})" if one.policy else ""
            console.print(Text(f"  checkpoint of step {one.step:,}{policy}: {one.uri}"), soft_wrap=True)
        _indented(console, f"{pick.kept.reason}: {pick.kept.value:.6g} at step {pick.kept.measured:,}")
    for copy in copies:
        console.print(Text(f"  copied to {copy}"), soft_wrap=True)


def _explain(console: Console, pick: Pick, saved: list[int]) -> None:
    rated = pick.rated
    assert rated is not None
    steps, values = list(rated.curve.steps), list(rated.curve.values)
    best = pick.best
    line, below = sparkline(steps, values, mark=None if best is None else (best.step, best.step))
    console.print(Text(f"  {line}", "blue", no_wrap=True))
    console.print(Text(f"  {below}", "green", no_wrap=True))
    _indented(console, f"rated by the value or the running median of {rated.width}, whichever is worse")
    for step in saved:
        found = rated.at(step)
        words = "left out: no value yet, or something was non-finite before it"
        if found is not None:
            words = f"rated {rated.sign * found[0]:.6g} (value {rated.sign * found[1]:.6g} at step {found[2]:,})"
        console.print(Text(f"    step {step:,}: {words}"))


def _indented(console: Console, text: str) -> None:
    console.print(Padding(Text(tamed(text), "dim"), (0, 0, 0, 4), expand=False))
