"""The live path on this machine: a collector with its page, a training in another process, findings as they come.

Ends with the page left open for you (Ctrl-C ends it), or by itself with --exit. The exit code is 1 where an injected fault was not
found at its very step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from faults import NAN_STEP, SPIKE, SPIKE_STEP, STEPS
from rich.console import Console
from rich.markup import escape

from gradwatch.cli import INTERRUPTED
from gradwatch.cli.follow import told_to_end
from gradwatch.cli.service import Service, service
from gradwatch.client.flag import Flag
from gradwatch.collector.server import server
from gradwatch.schema import FINISHED, RunState, StoredFinding
from gradwatch.settings import load_settings

HERE = Path(__file__).parent
STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
JUDGED_SECONDS = 20.0
EXPECTED = {("norm_spike", "verifier", SPIKE_STEP), ("nonfinite", "solver", NAN_STEP)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--exit", action="store_true", help="end when the training has ended, instead of keeping the page")
    parser.add_argument("--port", type=int, default=0, help="of the page; by default a free one")
    given = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    with told_to_end() as told, tempfile.TemporaryDirectory(prefix="gradwatch-demo-") as folder:
        settings = load_settings(environment={}, data=Path(folder) / "store")
        with service(settings, "127.0.0.1", given.port) as one, serving(one):
            found = watch(one, console, Path(folder), told)
            if told.is_set():
                return INTERRUPTED
            missing = EXPECTED - found
            said(console, one, missing)
            keep(console, one.url, told, stay=not given.exit and sys.stdout.isatty())
    return 1 if missing else 0


@contextmanager
def serving(one: Service) -> Iterator[None]:
    """The collector's port, served on a thread as long as the block lasts."""
    running = server(one.app)
    thread = Thread(target=running.run, args=([one.listener],), daemon=True)
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join()


def watch(one: Service, console: Console, folder: Path, told: Flag) -> set[tuple[str, str, int]]:
    """Train in another process and print every finding as it comes; what was found, as (kind, role, step)."""
    environment = os.environ | {"GRADWATCH_URL": one.url, "GRADWATCH_DIR": str(folder / "spool"), "GRADWATCH_MODE": "online"}
    command = [sys.executable, str(HERE / "live_training.py"), "--checkpoints", str(folder / "checkpoints")]
    known: dict[str, StoredFinding] = {}
    trouble = folder / "stderr"
    with trouble.open("w") as stderr, subprocess.Popen(command, env=environment, stderr=stderr) as training:
        try:
            announce(console, one.url)
            while training.poll() is None and not told.wait(0.2):
                show_new(one, console, known)
        finally:
            training.terminate()
    if told.is_set():
        return set()
    if training.returncode:
        console.print(trouble.read_text(), style="red", markup=False)
    one.collector.watching.wait_until_judged(JUDGED_SECONDS)
    show_new(one, console, known)
    return {(found.finding.kind, found.finding.role, found.finding.start_step) for found in known.values()}


def announce(console: Console, url: str) -> None:
    console.print(f"[bold]The page of this run: {url}[/]   (open it now, it moves)\n")
    console.print(
        f"A solver and a verifier learn with one shared policy in another process, {STEPS} steps. Injected on purpose:\n"
        f"the verifier's loss × {SPIKE:.0f} at step {SPIKE_STEP}, a NaN in the solver's loss at step {NAN_STEP}.\n"
    )


def show_new(one: Service, console: Console, known: dict[str, StoredFinding]) -> None:
    for state in one.collector.states():
        for found in one.collector.findings(state.info.id):
            if found.id not in known:
                known[found.id] = found
                style = STYLES[found.finding.severity]
                words = f"{found.finding.kind}[/]  {escape(found.finding.message)}"
                console.print(f"  step {found.finding.start_step:>4}  [{style}]{found.finding.severity:8} {words}")


def said(console: Console, one: Service, missing: set[tuple[str, str, int]]) -> None:
    (state,) = one.collector.states()
    console.print()
    for kind, role, step in sorted(EXPECTED, key=lambda expected: expected[2]):
        verdict = "[red]NOT found[/]" if (kind, role, step) in missing else "[green]found at that very step[/]"
        console.print(f"  injected at step {step} in the {role}: {kind} {verdict}")
    ended = "finished" if state.status == FINISHED else f"[red]{state.status}[/]"
    console.print(f"  the run {ended} at step {state.last_step}, {state.sequence:,} points are durable")
    for line in exported(one.url, state):
        console.print(f"  /metrics  {line}", style="dim", markup=False)


def exported(url: str, state: RunState) -> list[str]:
    """What Prometheus reads of the run's findings."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith("gradwatch_findings_total{") and state.info.id in line]


def keep(console: Console, url: str, told: Flag, stay: bool) -> None:
    console.print('\nNext: log your own training (README, "Watch a run"), or follow a log that is being written:')
    console.print("      .venv/bin/gradwatch up --follow YOUR_LOG        .venv/bin/gradwatch diagnose YOUR_LOG")
    if stay:
        console.print(f"\nThe page stays at [bold]{url}[/] until Ctrl-C.")
        while not told.wait(3600):
            pass
        console.print()


if __name__ == "__main__":
    sys.exit(main())
