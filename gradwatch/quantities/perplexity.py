"""Perplexity: how surprising the sequences are to the policy, each sequence counting once."""

from __future__ import annotations

import torch
from torch import Tensor

from gradwatch.quantities.per_role import RoleReading, reading_of
from gradwatch.quantities.policy_tokens import PolicyTokens


def measure_perplexity(tokens: PolicyTokens, logprobs: Tensor) -> RoleReading:
    """`perplexity` by role: the mean over sequences of exp(−mean log p), over the tokens of a sequence that are the role's.

    `logprobs` (nats) has the batch's shape. A sequence with a NaN, or with a token of probability 0, makes the perplexity of its
    roles NaN or infinite. Source: `training_ppl` in verl.
    """
    logprobs_M = tokens.flat(logprobs, "logprobs")
    sums_RN = tokens.sum_by_sequence(logprobs_M)
    counts_RN = tokens.sum_by_sequence(torch.ones_like(logprobs_M))
    each_RN = torch.where(counts_RN > 0, (-sums_RN / counts_RN).exp(), 0)
    return reading_of({"perplexity": each_RN.sum(1) / (counts_RN > 0).sum(1)}, tokens.owners)
