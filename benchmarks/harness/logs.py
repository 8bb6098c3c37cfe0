"""Training logs of any size, the same in every run: what trainers print, with the noise that is printed between it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

GRPO_KEYS = tuple(
    "num_tokens completions/mean_length completions/min_length completions/max_length completions/clipped_ratio "
    "completions/mean_terminated_length rewards/accuracy_reward/mean rewards/accuracy_reward/std rewards/format_reward/mean "
    "rewards/format_reward/std reward_std frac_reward_zero_std kl entropy clip_ratio/low_mean clip_ratio/high_mean".split()
)
VERL_KEYS = tuple(
    "actor/entropy actor/kl_loss actor/kl_coef actor/pg_loss actor/pg_clipfrac actor/ppo_kl actor/grad_norm actor/lr "
    "critic/score/mean critic/score/max critic/score/min critic/rewards/mean critic/rewards/max critic/rewards/min "
    "critic/advantages/mean critic/advantages/max critic/advantages/min critic/returns/mean response_length/mean "
    "response_length/max response_length/min response_length/clip_ratio prompt_length/mean timing_s/gen timing_s/reward "
    "timing_s/old_log_prob timing_s/ref timing_s/adv timing_s/update_actor timing_s/step timing_per_token_ms/gen "
    "perf/total_num_tokens perf/time_per_step perf/throughput perf/max_memory_allocated_gb perf/mfu/actor".split()
)
SB3_KEYS = {
    "rollout/": ("ep_len_mean", "ep_rew_mean"),
    "time/": ("fps", "iterations", "time_elapsed", "total_timesteps"),
    "train/": (
        "approx_kl",
        "clip_fraction",
        "clip_range",
        "entropy_loss",
        "explained_variance",
        "learning_rate",
        "loss",
        "value_loss",
    ),
}
NOISE = (
    "2026-03-01 12:00:00,123 - transformers.generation - WARNING - Setting `pad_token_id` to `eos_token_id` for generation.\n",
    "/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:91: UserWarning: None of the inputs have requires_grad.\n",
    "The answer follows from the two equations above, so x = 4 and the train needs 3 hours for the rest of the way.\n",
    "<think> We are asked for the number of apples. First she had 12, then she gave away 5 and bought 3 more. </think>\n",
    "INFO 03-01 12:00:01 block_manager.py:311] Sequence group 17 is preempted because there is not enough KV cache space.\n",
)


class Kind(NamedTuple):
    """A form of log: its file's name, its pieces from the first step on, and what closes a file."""

    file: str
    pieces: Callable[[], Iterator[str]]
    end: str = ""


def write_log(folder: Path, kind: Kind, size: int) -> Path:
    """Write a log of about `size` bytes."""
    path = folder / kind.file
    written = 0
    with path.open("wb") as stream:
        for piece in kind.pieces():
            written += stream.write(piece.encode())
            if written >= size:
                break
        stream.write(kind.end.encode())
    return path


def _metrics(step: int, random: Random) -> dict[str, float]:
    """A healthy run's loss, norm, reward and learning rate."""
    return {
        "loss": 2.0 / (1 + step / 500) + 0.02 * random.random(),
        "grad_norm": 0.8 + 0.1 * random.random(),
        "learning_rate": 1e-6 * (1 + math.cos(step / 1e6)),
        "reward": 1 - math.exp(-step / 2000) + 0.05 * random.random(),
    }


def trl_console() -> Iterator[str]:
    """TRL's GRPO: quoted numbers in dicts, tqdm bars drawn and cleared, warnings and samples between them."""
    random = Random(1)
    for step in range(1, 10**9):
        filled = "█" * (step % 40) + " " * (40 - step % 40)
        bar = f"\r 12%|{filled}| {step}/9000000 [2:29:21<48:14:23,  4.56s/it]"
        values = _metrics(step, random) | {key: random.random() for key in GRPO_KEYS}
        logged = {key: f"{value:.4g}" for key, value in values.items()} | {"epoch": f"{step / 1000:.2f}"}
        noise = NOISE[step % 5] + NOISE[(step + 2) % 5]
        yield f"{bar}{noise}{bar}\r{' ' * 100}\r{logged}\n{bar}{noise}"


def verl_console() -> Iterator[str]:
    """verl under Ray: a prefix in colour before each line, one long line of pairs a step, samples in between."""
    random = Random(2)
    ray = "\x1b[36m(TaskRunner pid=293776)\x1b[0m "
    for step in range(1, 10**9):
        values = _metrics(step, random) | {key: random.random() for key in VERL_KEYS}
        pairs = " - ".join(f"{key}:{value:.4f}" for key, value in values.items())
        bar = f"Training Progress:  12%|█▏        | {step}/9000000 [2:29:21<48:14:23,  4.56s/it]"
        noise = "".join(ray + NOISE[(step + at) % 5] for at in range(6))
        yield f"{noise}{ray}step:{step} - {pairs}\n{ray}{bar}\n"


def sb3_table() -> Iterator[str]:
    """Stable-Baselines3's tables."""
    random, rule = Random(3), "-" * 42 + "\n"
    for step in range(1, 10**9):
        known = {"iterations": step, "total_timesteps": step * 2048}
        lines = []
        for group, keys in SB3_KEYS.items():
            lines.append(f"| {group:<24} | {'':<11} |\n")
            lines += [f"|    {key:<21} | {known.get(key) or f'{random.random():.3g}':<11} |\n" for key in keys]
        yield rule + "".join(lines) + rule


def pairs_console() -> Iterator[str]:
    """A loop of one's own that prints pairs through `logging`."""
    random = Random(4)
    for step in range(1, 10**9):
        pairs = ", ".join(f"{key}: {value:.6f}" for key, value in _metrics(step, random).items())
        yield f"2026-03-01 12:00:00,123 - INFO - step: {step}, {pairs}, tokens/s: {9000 + 99 * random.random():.1f}\n"
        yield NOISE[step % 5] if step % 2 else ""


def jsonl() -> Iterator[str]:
    """One object a line."""
    random = Random(5)
    for step in range(1, 10**9):
        yield json.dumps({"step": step, **_metrics(step, random), **{key: random.random() for key in GRPO_KEYS[:8]}}) + "\n"


def csv_table() -> Iterator[str]:
    """A CSV with eight columns."""
    random = Random(6)
    yield ",".join(("step", *_metrics(0, random), *GRPO_KEYS[1:4])) + "\n"
    for step in range(1, 10**9):
        values = (*_metrics(step, random).values(), *(random.random() for _ in range(3)))
        yield f"{step}," + ",".join(f"{value:.8g}" for value in values) + "\n"


def trainer_state() -> Iterator[str]:
    """Hugging Face's `trainer_state.json`, as it is indented."""
    random = Random(7)
    yield '{\n  "best_metric": null,\n  "epoch": 3.0,\n  "global_step": 1000,\n  "log_history": [\n'
    for step in range(1, 10**9):
        record = {"epoch": step / 1000, **_metrics(step, random), "step": step}
        body = ",\n".join(f"      {json.dumps(key)}: {value!r}" for key, value in record.items())
        yield (",\n" if step > 1 else "") + "    {\n" + body + "\n    }"


KINDS: dict[str, Kind] = {
    "trl_console": Kind("trl.log", trl_console),
    "verl_console": Kind("verl.log", verl_console),
    "sb3_table": Kind("sb3.log", sb3_table),
    "pairs_console": Kind("pairs.log", pairs_console),
    "jsonl": Kind("metrics.jsonl", jsonl),
    "csv": Kind("metrics.csv", csv_table),
    "trainer_state": Kind("trainer_state.json", trainer_state, '\n  ],\n  "max_steps": 1000\n}\n'),
}
