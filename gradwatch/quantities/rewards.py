"""Rewards, their components and advantages: moments by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.per_role import RoleReading, join_readings, moments_reading, owners_of
from gradwatch.quantities.policy_tokens import PolicyTokens

Numbers = Tensor | Sequence[float | None]


def numbers_of(values: Numbers, name: str = "rewards") -> Tensor:
    """Values as a tensor (N,), None as NaN. Raises SettingsError where there is another shape."""
    if not isinstance(values, Tensor):
        values = torch.tensor([torch.nan if one is None else float(one) for one in values], dtype=torch.float64)
    if values.dim() != 1:
        raise SettingsError(f"{name} of shape {tuple(values.shape)}: give one number for each sequence, (N,)")
    return values.detach()


def measure_rewards(
    rewards: Numbers, roles: Tensor | None = None, names: Sequence[str] = (), metric: str = "reward"
) -> RoleReading:
    """Moments of rewards (N,) by role: `reward/mean`, `std` (ddof=0), `min`, `max` of the finite ones, `count`, `nonfinite`.

    `roles` (N,) are indices into `names`, -1 for none. None is NaN. `metric` names what the numbers are, if not rewards.
    """
    rewards_N = numbers_of(rewards, metric)
    return moments_reading(metric, rewards_N, owners_of(roles, names, torch.ones_like(rewards_N, dtype=torch.bool)))


def measure_reward_components(
    components: Mapping[str, Numbers], roles: Tensor | None = None, names: Sequence[str] = ()
) -> RoleReading:
    """Moments by role of each part of the reward (N,), by its name: `reward_component/{name}/mean` and so on.

    A slash in a name becomes a dot. A component that does not apply to a sequence (None, as TRL has it) counts as non-finite.
    """
    parts = [
        measure_rewards(values, roles, names, f"reward_component/{name.replace('/', '.')}") for name, values in components.items()
    ]
    if not parts:
        raise SettingsError("no reward components: give at least one, by its name")
    return join_readings(*parts)


def measure_advantages(tokens: PolicyTokens, advantages: Tensor) -> RoleReading:
    """Moments of advantages by role, `advantage/mean` and so on: of sequences that have a token of the role in the loss where they
    are (N,), of its tokens where they have the batch's shape.
    """
    if advantages.dim() != 1 or advantages.shape == tokens.shape:
        return moments_reading("advantage", tokens.flat(advantages, "advantages"), tokens.owners)
    return moments_reading("advantage", tokens.each_sequence(advantages, "advantages"), tokens.owners_of_sequences())
