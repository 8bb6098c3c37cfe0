"""The sequences behind a spike: each one's share in the gradient, from the token sketch of a mixed batch."""

from __future__ import annotations

import torch
from quantities.engines.tiny import flat, gradient, qwen, target_of, token_losses, tokens

from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import assign_roles

ROWS = 64
POISONED = (5, 23, 48)


def influence(advantage_B: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Of a policy gradient's loss over the rows that are kept."""
    model, ids = qwen(), tokens(ROWS)
    engine = Neutral(target_of(model, 3))
    engine.begin(assign_roles((torch.arange(ROWS) % 2)[kept], 2))
    (token_losses(model, ids[kept]).mean(1) * advantage_B[kept]).mean().backward()
    engine.end()
    reading = engine.conclude(engine.sums())
    assert isinstance(reading, RoleGradReading)
    assert reading.influence_N is not None
    return reading.influence_N


def norm(advantage_B: torch.Tensor, kept: torch.Tensor) -> float:
    model, ids = qwen(), tokens(ROWS)
    (token_losses(model, ids[kept]).mean(1) * advantage_B[kept]).mean().backward()
    return float(flat(model).norm())


def test_three_poisoned_sequences_of_64_are_the_first_and_without_them_the_norm_is_as_before() -> None:
    advantage_B = torch.randn(ROWS, generator=torch.Generator().manual_seed(0))
    everyone, poisoned_B = torch.arange(ROWS), advantage_B.clone()
    poisoned_B[list(POISONED)] *= 50
    first = influence(poisoned_B, everyone).argsort(descending=True)[:3]
    assert set(first.tolist()) == set(POISONED)
    kept = torch.tensor([row for row in everyone.tolist() if row not in first.tolist()])
    assert norm(poisoned_B, everyone) > 5 * norm(advantage_B, everyone)
    assert norm(poisoned_B, kept) <= 1.3 * norm(advantage_B, everyone)


def test_influence_is_each_sequences_share_in_the_gradient_and_sums_to_1() -> None:
    rows, model, ids = 6, qwen(), tokens(6)
    each = torch.stack([gradient(model, lambda row=row: token_losses(model, ids[row : row + 1]).sum()) for row in range(rows)])
    whole = each.sum(0)
    engine = Neutral(target_of(model, 3), exact_every=0)
    engine.begin(assign_roles([0, 1] * 3, 2))
    token_losses(model, ids).sum().backward()
    engine.end()
    reading = engine.conclude(engine.sums())
    assert isinstance(reading, RoleGradReading)
    truth = each @ whole / (whole @ whole)
    assert (reading.influence_N - truth).abs().max() <= reading.cosine_error * (each.norm(dim=1) / whole.norm()).max()
    assert abs(float(reading.influence_N.sum()) - 1) < 1e-4
