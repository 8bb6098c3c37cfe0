"""How far the training's log-probabilities are from those of the engine that sampled the tokens."""

from __future__ import annotations

from torch import Tensor

from gradwatch.quantities.importance_ratio import log_ratio
from gradwatch.quantities.kl import k3_of
from gradwatch.quantities.per_role import RoleReading, join_readings, mean_by_role, moments_reading, reading_of
from gradwatch.quantities.policy_tokens import PolicyTokens

STATS = ("mean", "max", "nonfinite")


def measure_rollout_mismatch(tokens: PolicyTokens, logprobs: Tensor, rollout_logprobs: Tensor) -> RoleReading:
    """`logp_difference` by role, |log π_train − log π_rollout| in nats (mean and max of the finite ones, the others counted).

    And KL(π_rollout‖π_train) in nats: `rollout_kl` (k3, r = π_train/π_rollout), `rollout_kl_k1` (log π_rollout − log π_train).
    `logprobs` are those of the weights that sampled: recomputed before the update (the old ones), else those of its first pass. A
    token that is NaN or infinite makes its role's KL so. Source: prime-rl's mismatch KL, verl's rollout correction;
    `sampling_logp_difference` in TRL.
    """
    log_r_M = log_ratio(tokens, logprobs, rollout_logprobs, "rollout_logprobs")
    mismatch = {
        "rollout_kl": mean_by_role(k3_of(log_r_M), tokens.owners),
        "rollout_kl_k1": mean_by_role(-log_r_M, tokens.owners),
    }
    return join_readings(
        moments_reading("logp_difference", log_r_M.abs(), tokens.owners, STATS), reading_of(mismatch, tokens.owners)
    )
