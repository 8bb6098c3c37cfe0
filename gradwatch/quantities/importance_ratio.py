"""Importance ratios ρ = π/π_old of the sampled tokens: how far the policy has moved from the one that the batch was made for."""

from __future__ import annotations

import torch
from torch import Tensor

from gradwatch.quantities.per_role import (
    RoleReading,
    join_readings,
    mean_by_role,
    moments_reading,
    reading_of,
    sum_by_role,
)
from gradwatch.quantities.policy_tokens import PolicyTokens


def log_ratio(tokens: PolicyTokens, logprobs: Tensor, other_logprobs: Tensor, other: str) -> Tensor:
    """How much likelier each token is than under the other policy, log π − log π_other, (M,); NaN where both are −Inf."""
    return tokens.flat(logprobs, "logprobs") - tokens.flat(other_logprobs, other)


def measure_importance_ratio(tokens: PolicyTokens, logprobs: Tensor, old_logprobs: Tensor) -> RoleReading:
    """Moments of ρ by role (`importance_ratio/…`, finite ratios alone, the others counted), `chi2_token` and
    `effective_sample_size`.

    chi2_token = E[ρ²] − 1, 0 where nothing has moved. effective_sample_size = (Σρ)²/(n·Σρ²), a share: 1 where all weights are
    equal. Both are over all of the role's tokens: one ratio that is NaN or infinite makes them so (the share NaN).
    """
    ratio_M = log_ratio(tokens, logprobs, old_logprobs, "old_logprobs").exp()
    squares_R = mean_by_role(ratio_M.square(), tokens.owners)
    mean_R = mean_by_role(ratio_M, tokens.owners)
    derived = {"chi2_token": squares_R - 1, "effective_sample_size": mean_R.square() / squares_R}
    return join_readings(moments_reading("importance_ratio", ratio_M, tokens.owners), reading_of(derived, tokens.owners))


def measure_clip_fraction(
    tokens: PolicyTokens, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, low: float, high: float
) -> RoleReading:
    """`clip_fraction`, `clip_fraction_low` and `clip_fraction_high` by role: shares of its tokens whose gradient PPO clips away.

    Of min(ρA, clip(ρ, 1 − low, 1 + high)·A) the clipped branch is active from above where A > 0 and ρ > 1 + high, from below where
    A < 0 and ρ < 1 − low: a ratio outside on the other side still has its gradient. `advantages` are (N,) or of the batch's shape.
    A ratio or an advantage that is NaN is not clipped. Source: Schulman et al. (2017); `clip_ratio/*` in TRL counts alike.
    """
    ratio_M = log_ratio(tokens, logprobs, old_logprobs, "old_logprobs").exp()
    advantage_M = tokens.spread(advantages, "advantages")
    low_M = (ratio_M < 1 - low) & (advantage_M < 0)
    high_M = (ratio_M > 1 + high) & (advantage_M > 0)
    counts = {"clip_fraction": low_M | high_M, "clip_fraction_low": low_M, "clip_fraction_high": high_M}
    size_R = sum_by_role(torch.ones_like(ratio_M), tokens.owners)
    return reading_of({key: sum_by_role(one, tokens.owners) / size_R for key, one in counts.items()}, tokens.owners)
