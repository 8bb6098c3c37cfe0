"""What watching gradients by role costs a training step, in time and in memory.

Models A and B (4.1 and 10.6 million parameters, shaped as Qwen2) train on 8 sequences of 256 tokens of K roles, one thread,
AdamW. Every variant has a copy of the model of its own, on which what watches stays attached. Each round takes every variant
for one step, in another order, right before or after a plain step; the processor time of the process, whatever thread spent it,
is divided by that of this plain step: one on micro-batches of 8 sequences a role for `micro` (`micro, parted`: the 8 sequences
parted among the roles), one of a model with LoRA adapters for `LoRA`. Engines measure at every step (max_overhead=None);
`every=10` is nine steps of `neutral` that are not measured and one that is. The exact steps that `neutral` takes at times, the
first and one in twenty, cost what `exact` does and are not in its median. Peak memory is that of a process for each variant,
above what its imports need. wandb is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from harness.rounds import Interval, Target, conclude, cpu_seconds, median_interval, table
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
PEAK_STEPS = 2


class Effort(NamedTuple):
    """Which cases are measured, the variants whose time and whose memory is, and the steps of each, without and with the clock."""

    cases: tuple[tuple[str, int], ...]
    variants: tuple[str, ...]
    weighed: tuple[str, ...]
    warm_up: int
    rounds: int


FULL = Effort(tuple((model, roles) for model in MODELS for roles in (2, 4, 8)), tuple(VARIANTS), tuple(VARIANTS), 2, 15)
QUICK = Effort((JUDGED,), (*ENGINES, UNMEASURED, PEER), ("plain", "neutral"), 1, 1)


def available(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith("wandb") or importlib.util.find_spec("wandb") is not None]


def times(setting: Setting, effort: Effort) -> dict[str, list[float]]:
    """The processor time of a step over that of its plain step right before or after it, by variant and round."""
    names, dice = available(effort.variants), Random(0)
    pairs = [(name, BASES.get(name, "plain")) for name in names if name != "plain"]
    with ExitStack() as stack:
        steps = {name: stack.enter_context(VARIANTS[name](setting)) for name in dict.fromkeys(chain.from_iterable(pairs))}
        for step in steps.values():
            for _ in range(effort.warm_up):
                step()
        seen: dict[str, list[float]] = {name: [] for name, _ in pairs}
        for number in range(effort.rounds):
            dice.shuffle(pairs)
            for pair in pairs:
                taken = {name: cpu_seconds(steps[name]) for name in (pair if number % 2 else pair[::-1])}
                seen[pair[0]].append(taken[pair[0]] / taken[pair[1]])
    return seen


def peaks(setting: Setting, names: Sequence[str]) -> dict[str, float]:
    """The peak memory of each variant in MB, each in a process of its own."""
    forking = multiprocessing.get_context("fork")
    found = {}
    for name in available(names):
        theirs, ours = forking.Pipe(duplex=False)
        process = forking.Process(target=tell_peak, args=(setting, name, ours))
        process.start()
        ours.close()
        found[name] = float(theirs.recv())
        process.join()
    return found


def tell_peak(setting: Setting, name: str, pipe: Connection) -> None:
    before = resident()[0]
    with VARIANTS[name](setting) as step:
        for _ in range(PEAK_STEPS):
            step()
        pipe.send(resident()[1] - before)


def resident() -> tuple[float, float]:
    """The memory of this process in MB, now and at its peak: of itself alone, where `getrusage` counts what it was forked from."""
    told = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (float(told[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return now, most


def measure(model: str, roles: int, effort: Effort) -> dict[str, dict[str, float]]:
    """A row for each variant."""
    with tempfile.TemporaryDirectory(prefix="gradwatch-bench-") as folder:
        setting = Setting(MODELS[model], roles, Path(folder))
        # First, while no thread runs that a forked process would miss.
        memory = peaks(setting, effort.weighed)
        seen = times(setting, effort)
    found = {"plain": Interval(1.0, 1.0, 1.0)} | {name: median_interval(values) for name, values in seen.items()}
    if UNMEASURED in found:
        found[EVERY_10] = Interval(*(0.9 * off + 0.1 * on for off, on in zip(found[UNMEASURED], found["neutral"], strict=True)))
    rows = {}
    for name, interval in found.items():
        row = dict(zip(COLUMNS, interval, strict=False))
        if name in memory:
            row |= {"peak MB": memory[name], "peak ÷ plain": memory[name] / memory[BASES.get(name, "plain")]}
        rows[name] = row
    return rows


def judged(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """The results that have a target."""
    # Without the peer nothing can be said of it: a target that is not measured is missed.
    peer = rows.get(PEER, {}).get("÷ plain", float("nan"))
    found = {f"{name} ÷ plain": rows[name]["÷ plain"] for name in MOST}
    found |= {f"{name} ÷ {PEER}": rows[name]["÷ plain"] / peer for name in MOST}
    return found | {f"peak memory, {name} ÷ plain": row["peak ÷ plain"] for name, row in rows.items() if "peak ÷ plain" in row}


def run(effort: Effort) -> int:
    """Measure everything, print it, and return the exit code."""
    results = {}
    for model, roles in effort.cases:
        rows = results[f"{model}, K={roles}"] = measure(model, roles, effort)
        print(f"model {model}, {roles} roles, {effort.rounds} rounds\n{table(rows, COLUMNS)}\n", flush=True)
    if JUDGED not in effort.cases:
        return 0
    measured = judged(results["{}, K={}".format(*JUDGED)])
    return conclude("hooks", results, measured, [one for one in TARGETS if one.name in measured])


def main() -> int:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the judged variants of one case, within a minute")
    parser.add_argument("--model", choices=MODELS, help="only this model")
    parser.add_argument("--roles", type=int, help="only with so many roles")
    parser.add_argument("--judged", action="store_true", help="only the variants that have a target")
    parser.add_argument("--rounds", type=int, help="so many rounds")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    if options.judged:
        effort = effort._replace(variants=QUICK.variants, weighed=("plain", *BASES.values(), *ENGINES))
    cases = tuple(one for one in effort.cases if options.model in (None, one[0]) and options.roles in (None, one[1]))
    return run(effort._replace(cases=cases, rounds=options.rounds or effort.rounds))


if __name__ == "__main__":
    sys.exit(main())
