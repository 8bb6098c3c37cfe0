"""Diagnose a healthy and a failing training of our own, then three public ones where they lie beside the checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from gradwatch.cli.progress import reading
from gradwatch.cli.report import diagnose
from gradwatch.cli.text import show
from gradwatch.errors import GradwatchError
from gradwatch.importers.reader import find_logs

HERE = Path(__file__).parent
CORPUS = HERE.parent.parent / "shared" / "corpus" / "files"
OURS = (
    (
        HERE / "solver_verifier_healthy.log",
        "A solver and a verifier learn with one shared policy (examples/solver_verifier.py --healthy). Nothing goes wrong.",
    ),
    (
        HERE / "solver_verifier.log",
        "The same training, but from step 240 on the verifier's advantages are divided by the solver's reward deviation.",
    ),
)
REAL = (
    (CORPUS / "tensorboard-02.tfevents", "A public GRPO run, TensorBoard events: the gradient explodes, then turns NaN."),
    (CORPUS / "csv-04.csv", "A public Stable-Baselines3 run, CSV: the reward is lost after a quarter of two million steps."),
    (CORPUS / "trainer-state-12.json", "A public fine-tuning, Hugging Face trainer_state.json: it overfits."),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exit", action="store_true", help="do not ask for a log of your own at the end")
    console = Console(highlight=False)
    ask = not parser.parse_args().exit and sys.stdin.isatty() and sys.stdout.isatty()
    for path, sentence in OURS:
        diagnosed(console, path, sentence)
    if all(path.exists() for path, _ in REAL):
        for path, sentence in REAL:
            diagnosed(console, path, sentence)
    else:
        console.print("The three public logs are not there: ../shared/corpus does not lie beside this checkout.\n")
    while ask and (typed := asked(console)):
        try:
            for path in find_logs(Path(typed).expanduser()):
                diagnosed(console, path)
        except GradwatchError as error:
            console.print(str(error), style="red", markup=False)
    console.print("Next: .venv/bin/gradwatch diagnose YOUR_LOG   says what went wrong in a training of yours")
    console.print("      make test                               checks gradwatch on this machine")


def diagnosed(console: Console, path: Path, sentence: str = "") -> None:
    """Print what a log is, then what is wrong with it."""
    if sentence:
        console.rule(style="dim")
        console.print(sentence + "\n", markup=False)
    with reading(path) as progress:
        reports = diagnose(path, progress)
    for one in reports:
        show(console, one)


def asked(console: Console) -> str:
    """The path that the user types; empty to end."""
    try:
        return console.input("A log or folder of yours to diagnose (empty to end): ").strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return ""


if __name__ == "__main__":
    main()
