"""Train a solver and a verifier that share one small policy, and log the run as trainers print it.

The solver reads three digits and says which is the largest. The verifier reads the digits and a claimed answer and says whether
it is right. Both learn by group-relative policy gradients (GRPO, arXiv 2402.03300): A = (r − mean(r)) / (std(r) + ε) over the
rollouts of one prompt.

The mistake: from step `MISTAKE_STEP` on, the verifier's advantages are divided by the deviation of the *solver's* group for the
same prompt, as after a resume with code that mixes up the roles' groups. The solver answers most prompts right by then, so that
deviation is often 0 and the verifier's advantages grow by 1/ε. No number is scripted: one update through the shared weights is
enough for the solver to forget what it had learned. `--healthy` trains the same run without the mistake.

In the names of tensors b is the prompt, p the digit's place, g the rollout of a group, a what a role can do.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
STEPS = 400
SEED = 7
MISTAKE_STEP = 240
EVAL_EVERY = 10
DIGITS, PLACES = 10, 3
PROMPTS, GROUP = 256, 8
HELD_OUT = 200
LEARNING_RATE = 0.5
ENTROPY_BONUS = 0.15
EPSILON = 1e-4
HIDDEN = 128
ROLES = ("solver", "verifier")


class Policy(nn.Module):
    """One trunk for both roles, a head for each: log-probabilities of the answers, or of the verdicts wrong and right."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear((PLACES + 1) * DIGITS + 1, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.answer = nn.Linear(HIDDEN, DIGITS)
        self.verdict = nn.Linear(HIDDEN, 2)

    def forward(self, digits_bp: Tensor, claim_b: Tensor | None = None) -> Tensor:
        seen = nn.functional.one_hot(digits_bp, DIGITS).flatten(1).float()
        if claim_b is None:
            blank = torch.zeros(len(seen), DIGITS + 1)
            return torch.log_softmax(self.answer(self.trunk(torch.cat([seen, blank], 1))), -1)
        claim = nn.functional.one_hot(claim_b, DIGITS).float()
        return torch.log_softmax(self.verdict(self.trunk(torch.cat([seen, claim, torch.ones(len(seen), 1)], 1))), -1)


class Rollouts(NamedTuple):
    """One role's groups: log-probabilities of what it could do, what it did, and what that earned."""

    logp_ba: Tensor
    action_bg: Tensor
    reward_bg: Tensor

    @property
    def entropy(self) -> Tensor:
        return -(self.logp_ba.exp() * self.logp_ba).sum(-1).mean()

    def loss(self, advantage_bg: Tensor) -> Tensor:
        return -(advantage_bg * self.logp_ba.gather(1, self.action_bg)).mean() - ENTROPY_BONUS * self.entropy


def prompts() -> tuple[Tensor, Tensor]:
    """All triples of digits, shuffled: those to train on and those held out."""
    everything = torch.tensor(list(itertools.product(range(DIGITS), repeat=PLACES)))
    shuffled = everything[torch.randperm(len(everything))]
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]


def roll_out(policy: Policy, digits_bp: Tensor) -> dict[str, Rollouts]:
    """A group of answers a prompt, then one of verdicts on a claim: the right answer, a random digit or the solver's first."""
    right_b = digits_bp.max(1).values
    logp_ba = policy(digits_bp)
    answer_bg = logp_ba.detach().exp().multinomial(GROUP, replacement=True)
    solver = Rollouts(logp_ba, answer_bg, (answer_bg == right_b[:, None]).float())
    claims_bc = torch.stack([right_b, torch.randint(DIGITS, right_b.shape), answer_bg[:, 0]], 1)
    claim_b = claims_bc.gather(1, torch.randint(3, right_b[:, None].shape))[:, 0]
    verdict_logp_ba = policy(digits_bp, claim_b)
    verdict_bg = verdict_logp_ba.detach().exp().multinomial(GROUP, replacement=True)
    return {
        "solver": solver,
        "verifier": Rollouts(verdict_logp_ba, verdict_bg, (verdict_bg == (claim_b == right_b).long()[:, None]).float()),
    }


def advantages(rollouts: dict[str, Rollouts], mistaken: bool) -> dict[str, Tensor]:
    """Each role's advantages; `mistaken` takes the verifier's deviation from the solver's groups."""
    scale = {role: rollouts["solver" if mistaken else role].reward_bg.std(1, keepdim=True) + EPSILON for role in ROLES}
    return {role: (one.reward_bg - one.reward_bg.mean(1, keepdim=True)) / scale[role] for role, one in rollouts.items()}


def norm(gradients: list[Tensor]) -> float:
    return float(torch.stack([one.norm() for one in gradients]).norm())


def train_step(policy: Policy, optimizer: torch.optim.Optimizer, digits_bp: Tensor, mistaken: bool) -> dict[str, float]:
    """One update of both roles; what was measured, gradients before the update."""
    rollouts = roll_out(policy, digits_bp)
    advantage = advantages(rollouts, mistaken)
    parameters = list(policy.parameters())
    total = [torch.zeros_like(one) for one in parameters]
    told: dict[str, float] = {}
    for role, one in rollouts.items():
        loss = one.loss(advantage[role])
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        total = [a + b for a, b in zip(total, gradients, strict=True)]
        told |= {
            f"train/{role}/loss": float(loss.detach()),
            f"train/{role}/grad_norm": norm(gradients),
            f"train/{role}/reward": float(one.reward_bg.mean()),
            f"train/{role}/entropy": float(one.entropy.detach()),
            f"train/{role}/adv_std": float(advantage[role].std()),
            f"train/{role}/frac_reward_zero_std": float((one.reward_bg.std(1) == 0).float().mean()),
        }
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    optimizer.step()
    loss_sum = sum(told[f"train/{role}/loss"] for role in ROLES)
    return {"loss": loss_sum, "grad_norm": norm(total), "learning_rate": optimizer.param_groups[0]["lr"], **told}


@torch.no_grad()
def accuracy(policy: Policy, digits_bp: Tensor) -> float:
    """The share of held-out prompts that the solver's likeliest answer gets right."""
    return float((policy(digits_bp).argmax(1) == digits_bp.max(1).values).float().mean())


def train(steps: int, healthy: bool) -> Iterator[dict[str, float]]:
    """The rows of the log, in order."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    training, held_out = prompts()
    policy = Policy()
    optimizer = torch.optim.SGD(policy.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)
    for step in range(1, steps + 1):
        digits_bp = training[torch.randint(len(training), (PROMPTS,))]
        told = train_step(policy, optimizer, digits_bp, mistaken=not healthy and step >= MISTAKE_STEP)
        schedule.step()
        yield {**told, "step": step}
        if step % EVAL_EVERY == 0:
            yield {"eval/accuracy": accuracy(policy, held_out), "step": step}


def bar(step: int, steps: int) -> str:
    """How tqdm draws `step` of `steps`, without the times: a log that is the same every time."""
    return f"{100 * step // steps:3d}%|{'█' * (10 * step // steps):10}| {step}/{steps}"


def console(rows: Iterator[dict[str, float]], steps: int) -> Iterator[str]:
    """The rows as they reach a terminal: a progress bar that is cleared for each dict of metrics and drawn again below it."""
    yield f"solver and verifier share one policy of {sum(one.numel() for one in Policy().parameters()):,} parameters\n"
    yield bar(0, steps)
    for row in rows:
        told = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
        drawn = bar(int(row["step"]), steps)
        yield f"\r{drawn}\r{' ' * len(drawn)}\r{told}\n{drawn}"
    yield "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a solver and a verifier for some seconds and write the console log.")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default {STEPS}; the mistake begins at step {MISTAKE_STEP}")
    parser.add_argument("--healthy", action="store_true", help="train without the mistake")
    parser.add_argument("--out", type=Path, help="the log to write; by default the one beside this script")
    given = parser.parse_args()
    out = given.out or HERE / ("solver_verifier_healthy.log" if given.healthy else "solver_verifier.log")
    begun = time.monotonic()
    with out.open("w", encoding="utf-8", newline="") as log:
        log.writelines(console(train(given.steps, given.healthy), given.steps))
    print(f"{given.steps} steps in {time.monotonic() - begun:.1f} s; now: gradwatch diagnose {out}")


if __name__ == "__main__":
    main()
