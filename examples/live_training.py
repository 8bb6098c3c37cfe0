"""Train the solver and the verifier of solver_verifier.py, and log every step to a collector while it runs.

This is what watching a training loop looks like: `gradwatch.init`, `watch` for the gradients of each role, `run.log` with a role,
samples, `run.log_checkpoint`, and the `with` block that finishes the run. Two faults are injected on purpose, at steps known
beforehand: see faults.py. Everything else is a real training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from faults import NAN_STEP, SPIKE, SPIKE_STEP, STEPS
from solver_verifier import (
    EVAL_EVERY,
    LEARNING_RATE,
    PROMPTS,
    ROLES,
    SEED,
    Policy,
    Rollouts,
    accuracy,
    advantages,
    prompts,
    roll_out,
)
from torch import Tensor

import gradwatch
from gradwatch_hooks.torch import Watcher, watch

SAVE_EVERY = 50
SAMPLES = 3
CLIP = 1.0


def injected(step: int, role: str) -> float:
    """What a role's loss is multiplied by."""
    if (step, role) == (SPIKE_STEP, "verifier"):
        return SPIKE
    return float("nan") if (step, role) == (NAN_STEP, "solver") else 1.0


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, digits_bp: Tensor, watcher: Watcher) -> None:
    rollouts = roll_out(policy, digits_bp)
    advantage = advantages(rollouts, mistaken=False)
    optimizer.zero_grad()
    for role, one in rollouts.items():
        loss = one.loss(advantage[role]) * injected(watcher.step, role)
        with watcher.role(role):
            loss.backward()
        watcher.log({"loss": loss, "reward": one.reward_bg, "entropy": one.entropy}, role=role)
    watcher.log({"learning_rate": optimizer.param_groups[0]["lr"]})
    watcher.log_samples(samples(digits_bp, rollouts, advantage))
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), CLIP)
    if norm.isfinite():
        optimizer.step()
    else:
        watcher.emit(skipped=True)


def samples(digits_bp: Tensor, rollouts: dict[str, Rollouts], advantage: dict[str, Tensor]) -> list[dict[str, Any]]:
    """The first rollout of the first prompts, as text."""
    said = {"solver": str, "verifier": lambda verdict: ("wrong", "right")[verdict]}
    asked = {"solver": "Which digit is the largest?", "verifier": "Is the claimed answer right?"}
    return [
        {
            "role": role,
            "prompt": f"{' '.join(map(str, digits_bp[at].tolist()))}: {asked[role]}",
            "output": said[role](int(one.action_bg[at, 0])),
            "rewards": {"exact": float(one.reward_bg[at, 0])},
            "advantage": float(advantage[role][at, 0]),
            "group": str(at),
        }
        for role, one in rollouts.items()
        for at in range(SAMPLES)
    ]


def train(run: gradwatch.Run, steps: int, pause: float, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    training, held_out = prompts()
    policy = Policy()
    optimizer = torch.optim.SGD(policy.parameters(), lr=LEARNING_RATE)
    # Tiny as it is, this model's step is so short that measuring is dear beside it: no budget.
    watcher = watch(policy, run=run, optimizer=optimizer, roles=ROLES, max_overhead=None, first_step=1)
    for step in range(1, steps + 1):
        train_step(policy, optimizer, training[torch.randint(len(training), (PROMPTS,))], watcher)
        if step % EVAL_EVERY == 0:
            run.log({"eval/accuracy": accuracy(policy, held_out)}, step=step)
        if step % SAVE_EVERY == 0:
            path = folder / f"step-{step}.pt"
            torch.save(policy.state_dict(), path)
            run.log_checkpoint(str(path), step=step)
        time.sleep(pause)  # so that a person can watch
    watcher.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train for some seconds and log to the collector at GRADWATCH_URL.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds to wait after each step")
    parser.add_argument("--checkpoints", type=Path, help="folder to save the policy in; by default a new temporary one")
    given = parser.parse_args()
    folder = given.checkpoints or Path(tempfile.mkdtemp(prefix="gradwatch-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    config = {"learning_rate": LEARNING_RATE, "clip": CLIP, "spike_step": SPIKE_STEP, "nan_step": NAN_STEP}
    roles = {role: {"policy": "shared"} for role in ROLES}
    with gradwatch.init(project="demo", name="solver-verifier", config=config, roles=roles) as run:
        train(run, given.steps, given.pause, folder)


if __name__ == "__main__":
    main()
