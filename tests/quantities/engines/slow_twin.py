"""What separate backward passes say of each speaker's gradient, and how far off a reading is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradwatch.quantities import Unavailable, group_parameters
from gradwatch.quantities.engines.engine import Engine, Target
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles, assign_roles


class Pass(NamedTuple):
    """A forward pass: its losses (B,), one of each row, and the speaker of each row; the last speaker has no role."""

    losses: Callable[[], Tensor]
    speakers: Sequence[int]

    def roles(self, count: int) -> BatchRoles:
        return assign_roles([-1 if one == count - 1 else one for one in self.speakers], count - 1)


def target(model: nn.Module, speakers: int, *, is_spread: bool = False, seed: int = 0) -> Target:
    return Target(model, group_parameters(model).parameters, speakers, is_spread, seed)


def separate_gradients(to: Target, passes: Iterable[Pass], only: Iterable[int] | None = None) -> Tensor:
    """(K, P), float64: one backward pass for each speaker; of the parameters with these indices, else of all."""
    chosen = [to.parameters[index].parameter for index in (range(len(to.parameters)) if only is None else sorted(only))]
    rows = []
    for speaker in range(to.speakers):
        whole = torch.zeros(sum(one.numel() for one in chosen), dtype=torch.float64)
        for one in passes:
            weight = (torch.tensor(one.speakers) == speaker).float()
            found = torch.autograd.grad((one.losses() * weight).sum(), chosen, allow_unused=True)
            pairs = zip(found, chosen, strict=True)
            whole += torch.cat([(torch.zeros_like(p) if g is None else g).double().reshape(-1) for g, p in pairs])
        rows.append(whole)
    return torch.stack(rows)


def measure(engine: Engine, passes: Iterable[Pass], speakers: int, *, together: bool = False) -> RoleGradReading:
    """One step: a backward after each pass, or one through all of them."""
    total: Tensor | float = 0.0
    for one in passes:
        engine.begin(one.roles(speakers))
        loss = one.losses().sum()
        engine.end()
        if together:
            total = total + loss
        else:
            loss.backward()
    if isinstance(total, Tensor):
        total.backward()
    reading = engine.conclude(engine.sums())
    assert not isinstance(reading, Unavailable), reading.reason
    return reading


def off(reading: RoleGradReading, gradients_KP: Tensor) -> float:
    """The largest error of an entry of the Gram matrix, as a share of the two norms; without a gradient it must be 0."""
    true_KK = gradients_KP @ gradients_KP.T
    norms_K = true_KK.diagonal().sqrt()
    silent = norms_K == 0
    assert not reading.gram_KK[silent].any()
    scale_KK = norms_K[:, None] * norms_K
    return float(((reading.gram_KK - true_KK).abs() / scale_KK)[~silent][:, ~silent].max())


def norm_off(reading: RoleGradReading, gradients_KP: Tensor) -> Tensor:
    """The relative error of each norm."""
    true_K = gradients_KP.norm(dim=1)
    return reading.gram_KK.diagonal().sqrt() / true_K - 1


def cosines_off(reading: RoleGradReading, gradients_KP: Tensor) -> Tensor:
    """The error of each pair's cosine."""
    first, second = torch.triu_indices(len(gradients_KP), len(gradients_KP), 1)
    unit_KP = gradients_KP / gradients_KP.norm(dim=1, keepdim=True)
    norms_K = reading.gram_KK.diagonal().sqrt()
    measured_KK = reading.gram_KK / (norms_K[:, None] * norms_K)
    return (measured_KK - unit_KP @ unit_KP.T)[first, second]
