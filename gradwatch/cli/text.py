"""Reports for people."""

from __future__ import annotations

import re

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from gradwatch.cli.report import Report, curve_name, verdict
from gradwatch.cli.sparkline import sparkline
from gradwatch.schema import Finding

STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
MAX_FINDINGS = 12
MAX_WARNINGS = 6
LONGEST_WORD = 120
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def tamed(text: str) -> str:
    """A log's text for a terminal: control characters are spelled out, endless words are shortened in their middle."""
    text = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
    return _LONG_WORD.sub(lambda found: f"{found[0][: LONGEST_WORD - 40]}…{found[0][-39:]}", text)


def show(console: Console, one: Report) -> None:
    """Print one report: verdict, findings with a sparkline each, best step, and what was odd about the log."""
    rows = f"{one.run.rows:,} rows" if one.run.rows else ""
    steps = "" if one.first_step is None else f"steps {one.first_step:,}–{one.last_step:,}"
    facts = " · ".join(filter(None, (one.run.format, rows, steps)))
    console.print(Text.assemble((tamed(one.run.name), "bold"), (f"  {facts}", "dim")))
    style = "bold red" if one.sick else "bold green" if one.metrics else "bold yellow"
    console.print(Padding(Text(tamed(verdict(one)), style), (0, 0, 0, 2), expand=False))
    advised: set[str] = set()
    for found in one.findings[:MAX_FINDINGS]:
        _finding(console, one, found)
        if found.suggestion not in advised:
            console.print(Padding(Text(f"→ {tamed(found.suggestion)}", "dim"), (0, 0, 0, 4), expand=False))
        advised.add(found.suggestion)
    if len(one.findings) > MAX_FINDINGS:
        console.print(f"\n  [dim]… and {len(one.findings) - MAX_FINDINGS} more findings; --format json has all of them[/]")
    if one.best is not None:
        console.print(f"\n  [bold green]best step {one.best.step:,}[/]  {escape(tamed(one.best.metric))} = {one.best.value:.6g}")
        console.print(Padding(Text(tamed(one.best.reason), "dim"), (0, 0, 0, 4), expand=False))
    if one.run.warnings:
        console.print("\n  [dim]about the log[/]")
        for warning in one.run.warnings[:MAX_WARNINGS]:
            console.print(Padding(Text(f"• {tamed(warning)}", "dim"), (0, 0, 0, 4), expand=False))
        if len(one.run.warnings) > MAX_WARNINGS:
            console.print(f"    [dim]• and {len(one.run.warnings) - MAX_WARNINGS} more[/]")
    console.print()


def _finding(console: Console, one: Report, found: Finding) -> None:
    console.print()
    console.print(
        Padding(Text.assemble((f"{found.severity:8} ", STYLES[found.severity]), (found.kind, "bold")), (0, 0, 0, 2), expand=False)
    )
    console.print(Padding(Text(tamed(found.message)), (0, 0, 0, 4), expand=False))
    curve = one.curves.get(curve_name(found))
    if curve is not None:
        line, below = sparkline(curve.steps, curve.values, mark=(found.start_step, found.end_step))
        console.print(
            Padding(Text(f"{curve.steps[0]:,} {line} {curve.steps[-1]:,}", "blue", no_wrap=True), (0, 0, 0, 4), expand=False)
        )
        lead = " " * (len(f"{curve.steps[0]:,}") + 1)
        console.print(Padding(Text(lead + below, STYLES[found.severity], no_wrap=True), (0, 0, 0, 4), expand=False))
