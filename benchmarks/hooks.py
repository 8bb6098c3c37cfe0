"""What watching gradients by role costs a training step, in time and in memory.

Models A and B (4.1 and 10.6 million parameters, shaped as Qwen2) train on 8 sequences of 256 tokens of K roles, one thread, AdamW.
Every variant has a copy of the model of its own, on which what watches stays attached. Each round takes every variant for one step,
in another order; the processor time of the process, whatever thread spent it, is divided by that of the plain step of that round:
of micro-batches by role for `micro`, of a model with LoRA adapters for `LoRA`. Engines measure at every step (max_overhead=None);
`every=10` is nine steps of `neutral` that are not measured and one that is. Peak memory is that of a process for each variant,
above what its imports need. wandb is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

import psutil
import torch
from harness.rounds import Interval, Target, conclude, cpu_seconds, ratios, table
from harness.training import BASES, MODELS, VARIANTS, Setting

ENGINES = ("micro", "LoRA", "neutral", "split")
PEER = "wandb.watch(all)"
UNMEASURED, EVERY_10 = "neutral, not measured", "every=10"
COLUMNS = ("÷ plain", "from", "to", "peak MB", "peak ÷ plain")
MOST = {"micro": 1.03, "LoRA": 1.07, "neutral": 1.08, "split": 1.08, EVERY_10: 1.02}
TARGETS = (
    *(Target(f"{name} ÷ plain", most=most) for name, most in MOST.items()),
    *(Target(f"{name} ÷ {PEER}", most=1.0) for name in MOST),
    *(Target(f"peak memory, {name} ÷ plain", most=1.12) for name in ENGINES),
)
JUDGED = ("B", 4)
WARM_UP = 2


class Effort(NamedTuple):
    """Which cases and variants are measured, and in how many rounds."""

    cases: tuple[tuple[str, int], ...]
    variants: tuple[str, ...]
    rounds: int
    warm_up: int = WARM_UP


FULL = Effort(tuple((model, roles) for model in MODELS for roles in (2, 4, 8)), tuple(VARIANTS), 15)
QUICK = Effort((JUDGED,), ("plain", *BASES.values(), *ENGINES, UNMEASURED, PEER), 2, 1)


def available(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith("wandb") or importlib.util.find_spec("wandb") is not None]


def times(setting: Setting, effort: Effort) -> dict[str, list[float]]:
    """Seconds of processor time of a step, by variant and round."""
    names, dice = available(effort.variants), Random(0)
    with ExitStack() as stack:
        steps = {name: stack.enter_context(VARIANTS[name](setting)) for name in names}
        for step in steps.values():
            for _ in range(effort.warm_up):
                step()
        seen: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(effort.rounds):
            dice.shuffle(names)
            for name in names:
                seen[name].append(cpu_seconds(steps[name]))
    return seen


def peaks(model: str, roles: int, names: Sequence[str]) -> dict[str, float]:
    """The peak memory of each variant in MB, each in a process of its own."""
    found = {}
    for name in available(names):
        command = [sys.executable, __file__, "--peak", name, "--model", model, "--roles", str(roles)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[name] = float(json.loads(told.splitlines()[-1]))
    return found


def peak(setting: Setting, name: str) -> float:
    """The peak memory of this process over some steps, above what it has now, in MB."""
    before = psutil.Process().memory_info().rss
    with VARIANTS[name](setting) as step:
        for _ in range(WARM_UP + 1):
            step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before / 2**20


def measure(model: str, roles: int, effort: Effort) -> dict[str, dict[str, float]]:
    """A row for each variant."""
    with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as folder:
        seen = times(Setting(MODELS[model], roles, Path(folder)), effort)
    found = ratios(seen, BASES, "plain")
    if UNMEASURED in found:
        found[EVERY_10] = Interval(*(0.9 * off + 0.1 * on for off, on in zip(found[UNMEASURED], found["neutral"], strict=True)))
    memory = peaks(model, roles, effort.variants)
    rows = {}
    for name, interval in found.items():
        row = dict(zip(COLUMNS, interval, strict=False))
        if name in memory:
            row |= {"peak MB": memory[name], "peak ÷ plain": memory[name] / memory[BASES.get(name, "plain")]}
        rows[name] = row
    return rows


def judged(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """The results that have a target."""
    found = {f"{name} ÷ plain": rows[name]["÷ plain"] for name in MOST}
    # Without the peer nothing can be said of it: a target that is not measured is missed.
    peer = rows.get(PEER, {}).get("÷ plain", float("nan"))
    found |= {f"{name} ÷ {PEER}": rows[name]["÷ plain"] / peer for name in MOST}
    return found | {f"peak memory, {name} ÷ plain": rows[name]["peak ÷ plain"] for name in ENGINES}


def run(effort: Effort) -> int:
    """Measure everything, print it, and return the exit code."""
    results = {}
    for model, roles in effort.cases:
        rows = results[f"{model}, K={roles}"] = measure(model, roles, effort)
        print(f"model {model}, {roles} roles, {effort.rounds} rounds\n{table(rows, COLUMNS)}\n", flush=True)
    judged_rows = results.get("{}, K={}".format(*JUDGED))
    if judged_rows is None:
        return 0
    return conclude("hooks", results, judged(judged_rows), TARGETS)


def main() -> int:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the judged variants of one case, within a minute")
    parser.add_argument("--model", choices=MODELS, help="only this model")
    parser.add_argument("--roles", type=int, help="only with so many roles")
    parser.add_argument("--peak", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as folder:
            print(json.dumps(peak(Setting(MODELS[options.model], options.roles, Path(folder)), options.peak)))
        return 0
    effort = QUICK if options.quick else FULL
    cases = tuple(one for one in effort.cases if options.model in (None, one[0]) and options.roles in (None, one[1]))
    return run(effort._replace(cases=cases))


if __name__ == "__main__":
    sys.exit(main())
