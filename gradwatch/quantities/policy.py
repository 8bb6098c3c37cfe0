"""Everything that the log-probabilities of one batch say of the policy, by role, in one reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwatch.quantities.entropy import measure_entropy
from gradwatch.quantities.importance_ratio import measure_clip_fraction, measure_importance_ratio
from gradwatch.quantities.kl import measure_approx_kl, measure_kl
from gradwatch.quantities.per_role import RoleReading, join_readings, reading_of, sum_by_role
from gradwatch.quantities.perplexity import measure_perplexity
from gradwatch.quantities.policy_tokens import PolicyTokens, place_tokens
from gradwatch.quantities.rewards import measure_advantages
from gradwatch.quantities.rollout_mismatch import measure_rollout_mismatch


@dataclass(frozen=True, slots=True, eq=False)
class PolicyBatch:
    """What a training step knows of its B rows of T positions. What is None is not measured.

    `logprobs_BT` (nats) are those of the sampled tokens under the weights that are trained; `mask_BT` is not 0 where a token enters
    the loss, and what lies elsewhere is never looked at. `old_logprobs_BT` are of the policy that ρ is measured from,
    `ref_logprobs_BT` of the reference, `rollout_logprobs_BT` of the engine that sampled; `entropies_BT` are in nats a token
    (`entropy_of_logits`). `advantages` and `roles` are (N,), one for each sequence, or (B, T); `roles` are indices into `names`, -1
    for none. Ratios are clipped to [1 − clip_low, 1 + clip_high] where both are given. `sequence_BT` numbers the sequences in
    packed rows, 0 to N - 1 over the whole batch, -1 for padding; without it each row is one. All (B, T) may be flat (M,) beside it;
    (N,) is then told from (M,) by its length. All is measured on the mask's device: what lies on another is copied there.
    """

    logprobs_BT: Tensor
    mask_BT: Tensor
    roles: Tensor | None = None
    names: tuple[str, ...] = ()
    sequence_BT: Tensor | None = None
    old_logprobs_BT: Tensor | None = None
    ref_logprobs_BT: Tensor | None = None
    rollout_logprobs_BT: Tensor | None = None
    entropies_BT: Tensor | None = None
    advantages: Tensor | None = None
    clip_low: float | None = None
    clip_high: float | None = None


@torch.no_grad()
def measure_policy(batch: PolicyBatch) -> RoleReading:
    """All that can be measured of a batch, by role and of all; `read()` makes it numbers with one host sync.

    Always `loss_tokens` (tokens in the loss) and `perplexity`; with entropies `entropy`; with advantages `advantage/…`; with old
    log-probabilities `importance_ratio/…`, `chi2_token`, `effective_sample_size`, `approx_kl`, `approx_kl_k1` and, with advantages
    and a clip range, `clip_fraction`, `clip_fraction_low`, `clip_fraction_high`; with those of the reference `kl`, `kl/max`,
    `kl_k1`; with those of the rollout `logp_difference/…` (from the old log-probabilities, where given, to the rollout's) and
    `rollout_kl`. A role without a token in the loss is absent.

    Accumulates in float64 (float32 where the device has none) whatever the dtype. NaN and infinities stay in the roles that own
    them: kept out of the moments and counted under `/nonfinite`, carried on by every number that has no such count.

    Raises SettingsError where shapes are wrong; waits for nothing.
    """
    count = len(batch.advantages) if batch.advantages is not None and batch.advantages.shape != batch.mask_BT.shape else None
    tokens = place_tokens(batch.mask_BT, batch.roles, batch.names, batch.sequence_BT, count)
    return join_readings(*_readings(batch, tokens))


def _readings(batch: PolicyBatch, tokens: PolicyTokens) -> Iterator[RoleReading]:
    sampled = batch.logprobs_BT
    ones_M = torch.ones_like(tokens.sequence_M, dtype=torch.float32)
    yield reading_of({"loss_tokens": sum_by_role(ones_M, tokens.owners)}, tokens.owners)
    yield measure_perplexity(tokens, sampled)
    if batch.entropies_BT is not None:
        yield measure_entropy(tokens, batch.entropies_BT)
    if batch.advantages is not None:
        yield measure_advantages(tokens, batch.advantages)
    if batch.old_logprobs_BT is not None:
        sampled = batch.old_logprobs_BT
        yield from _update(batch, tokens, sampled)
    if batch.ref_logprobs_BT is not None:
        yield measure_kl(tokens, batch.logprobs_BT, batch.ref_logprobs_BT)
    if batch.rollout_logprobs_BT is not None:
        yield measure_rollout_mismatch(tokens, sampled, batch.rollout_logprobs_BT)


def _update(batch: PolicyBatch, tokens: PolicyTokens, old_logprobs: Tensor) -> Iterator[RoleReading]:
    """What is measured from the policy before the update."""
    yield measure_importance_ratio(tokens, batch.logprobs_BT, old_logprobs)
    yield measure_approx_kl(tokens, batch.logprobs_BT, old_logprobs)
    if batch.advantages is not None and batch.clip_low is not None and batch.clip_high is not None:
        yield measure_clip_fraction(tokens, batch.logprobs_BT, old_logprobs, batch.advantages, batch.clip_low, batch.clip_high)
