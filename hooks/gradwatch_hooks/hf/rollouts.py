"""The rollouts of one generation, as TRL scores them, and what each role's came to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradwatch.quantities.calls import Call, measure_calls
from gradwatch.quantities.reward_groups import measure_groups
from gradwatch.quantities.rewards import measure_rewards
from gradwatch.quantities.roles import NOBODY, Speaker

FormatValid = Callable[[str], bool]
MEANINGLESS = frozenset(
    "calls_per_trajectory trajectory_share turns/mean turns/max frac_groups_all_right frac_groups_all_wrong".split()
)
"""What says nothing where each rollout is one call on its own, and of rewards that are not 0 or 1."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What the reward functions saw of this process's N completions, and said: N rows of one number a function, NaN for None."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    rewards: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. `reward` is the weighted sum of its parts, NaN where no function scored it."""

    speaker: Speaker
    group: str
    prompt: str
    output: str
    rewards: Mapping[str, float]
    reward: float
    advantage: float | None
    prompt_tokens: int
    output_tokens: int
    format_valid: bool | None

    def as_sample(self) -> dict[str, Any]:
        """As `Run.log_samples` takes it."""
        return {
            "role": self.speaker.role,
            "agent": self.speaker.agent,
            "group": self.group,
            "prompt": self.prompt,
            "output": self.output,
            "rewards": dict(self.rewards),
            "advantage": self.advantage,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "format_valid": self.format_valid,
        }


def rollouts_of(
    scores: Scores,
    batch: Mapping[str, Tensor],
    speakers: Sequence[Speaker],
    groups: Sequence[str],
    weights: Mapping[str, float],
    format_valid: FormatValid | None,
) -> list[Rollout]:
    """The rollouts of a scored batch, whose tensors have N rows. `weights` are those of the reward functions, by name."""
    advantages = batch["advantages"]
    advantage_N: list[float | None] = advantages.tolist() if advantages.dim() == 1 else [None] * len(advantages)
    prompt_tokens_N, output_tokens_N = (batch[f"{part}_mask"].sum(1).tolist() for part in ("prompt", "completion"))
    made = []
    for at, speaker in enumerate(speakers):
        parts = dict(zip(weights, scores.rewards[at], strict=True))
        output = text_of(scores.completions[at])
        made.append(
            Rollout(
                speaker=speaker,
                group=groups[at],
                prompt=text_of(scores.prompts[at]),
                output=output,
                rewards=parts,
                reward=total_reward(parts, weights),
                advantage=advantage_N[at],
                prompt_tokens=int(prompt_tokens_N[at]),
                output_tokens=int(output_tokens_N[at]),
                format_valid=None if format_valid is None else bool(format_valid(output)),
            )
        )
    return made


def total_reward(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Σ w·r over the functions that scored it, as TRL sums them; NaN where none did."""
    scored = [weights[name] * part for name, part in parts.items() if not math.isnan(part)]
    return sum(scored) if scored else math.nan


def text_of(said: Any) -> str:
    """A prompt or completion as text: itself, the content of its one message, or a line for each message."""
    if isinstance(said, str):
        return said
    lines = [(str(one.get("role", "")), _content(one.get("content"))) for one in said]
    return lines[0][1] if len(lines) == 1 else "\n".join(f"{role}: {content}" for role, content in lines)


def metrics_of(rollouts: Sequence[Rollout]) -> dict[str, dict[str, float]]:
    """What the rollouts of one generation came to, by role: rewards, their groups, calls and lengths. Without the empty role."""
    names = [name for name in dict.fromkeys(one.speaker.role for one in rollouts) if name]
    if not names:
        return {}
    roles_N = torch.tensor([names.index(one.speaker.role) if one.speaker.role else NOBODY for one in rollouts])
    rewards = [one.reward for one in rollouts]
    calls = [Call(one.speaker.role, at, 0, one.prompt_tokens, one.output_tokens) for at, one in enumerate(rollouts)]
    parts = (
        measure_rewards(rewards, roles_N, names).read(),
        measure_groups(rewards, [one.group for one in rollouts], roles_N, names).read().numbers,
        measure_calls(calls),
    )
    return {
        name: {key: value for part in parts for key, value in part.get(name, {}).items() if key not in MEANINGLESS}
        for name in names
    }


def shares_of(rollouts: Sequence[Rollout]) -> Iterator[tuple[str, str, dict[str, list[float]]]]:
    """By role and reward function the values of that function, and by role whether the format is valid, with an empty function.

    A function that applied to none of a role's rollouts is left out.
    """
    for role in dict.fromkeys(one.speaker.role for one in rollouts if one.speaker.role):
        own = [one for one in rollouts if one.speaker.role == role]
        for name in own[0].rewards:
            values = [one.rewards[name] for one in own]
            if not all(map(math.isnan, values)):
                yield role, name, {"reward_component": values}
        valid = [float(one.format_valid) for one in own if one.format_valid is not None]
        if valid:
            yield role, "", {"format_valid": valid}


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
