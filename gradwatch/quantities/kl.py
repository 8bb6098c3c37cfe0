"""Kullback-Leibler divergences, estimated from the log-probabilities of the sampled tokens.

With samples x of p and r = q(x)/p(x), KL(p‖q) = E[k1] = E[k3]: k1 = −log r has either sign, k3 = r − 1 − log r is never negative
and varies less. Source: Schulman, "Approximating KL Divergence" (2020).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradwatch.quantities.importance_ratio import log_ratio
from gradwatch.quantities.per_role import RoleReading, max_by_role, mean_by_role, reading_of
from gradwatch.quantities.policy_tokens import PolicyTokens


def k3_of(log_ratio_M: Tensor) -> Tensor:
    """From log r, r − 1 − log r: without the rounding of r − 1 near r = 1, and infinite where r is 0 or infinite."""
    return torch.where(log_ratio_M == torch.inf, log_ratio_M, log_ratio_M.expm1() - log_ratio_M)


def measure_kl(tokens: PolicyTokens, logprobs: Tensor, ref_logprobs: Tensor) -> RoleReading:
    """KL(π‖π_ref) by role, in nats a token: `kl` (k3, r = π_ref/π), its largest token `kl/max`, and `kl_k1` (log π − log π_ref).

    Assumes tokens that π sampled; TRL's `kl` is this k3. NaN and infinities of one token make those of its role.
    """
    k1_M = log_ratio(tokens, logprobs, ref_logprobs, "ref_logprobs")
    k3_M = k3_of(-k1_M)
    return reading_of(
        {
            "kl": mean_by_role(k3_M, tokens.owners),
            "kl/max": max_by_role(k3_M, tokens.owners),
            "kl_k1": mean_by_role(k1_M, tokens.owners),
        },
        tokens.owners,
    )


def measure_approx_kl(tokens: PolicyTokens, logprobs: Tensor, old_logprobs: Tensor) -> RoleReading:
    """KL(π_old‖π) of the update by role, in nats a token: `approx_kl` (k3, r = π/π_old) and `approx_kl_k1` (log π_old − log π).

    Assumes tokens that π_old sampled. Stable-Baselines3's `approx_kl` is this k3, verl's `ppo_kl` this k1.
    """
    log_r_M = log_ratio(tokens, logprobs, old_logprobs, "old_logprobs")
    return reading_of(
        {
            "approx_kl": mean_by_role(k3_of(log_r_M), tokens.owners),
            "approx_kl_k1": mean_by_role(-log_r_M, tokens.owners),
        },
        tokens.owners,
    )
