"""Random batches of tokens with roles, and the plain Python lists that slow twins count over."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from gradwatch.quantities.per_role import RoleReading
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import PolicyTokens, place_tokens

ROLES = ("solver", "verifier", "judge")
NOBODY = -1
Numbers = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Position:
    """One position that enters the loss: its sequence, its role ("" for none), and where it lies in the flattened batch."""

    sequence: int
    role: str
    at: int


def positions(batch: PolicyBatch) -> dict[str, list[Position]]:
    """The positions in the loss of each role that has one, those of all under the empty role."""
    mask, sequence = batch.mask_BT.reshape(-1).tolist(), sequences_of(batch).reshape(-1).tolist()
    found: defaultdict[str, list[Position]] = defaultdict(list)
    for at, (counts, place) in enumerate(zip(mask, sequence, strict=True)):
        if counts and place >= 0:
            role = role_at(batch, place, at)
            for owner in {"", role}:
                found[owner].append(Position(place, role, at))
    return dict(found)


def role_at(batch: PolicyBatch, sequence: int, at: int) -> str:
    if batch.roles is None:
        return ""
    index = int(batch.roles[sequence]) if batch.roles.dim() == 1 else int(batch.roles.reshape(-1)[at])
    return batch.names[index] if 0 <= index < len(batch.names) else ""


def sequences_of(batch: PolicyBatch) -> Tensor:
    rows = torch.arange(len(batch.mask_BT))[:, None].expand_as(batch.mask_BT)
    return rows if batch.sequence_BT is None else batch.sequence_BT


def values(tensor: Tensor) -> list[float]:
    return [float(one) for one in tensor.double().reshape(-1).tolist()]


def tokens_of(batch: PolicyBatch) -> PolicyTokens:
    count = None if batch.advantages is None or batch.advantages.dim() == 2 else len(batch.advantages)
    return place_tokens(batch.mask_BT, batch.roles, batch.names, batch.sequence_BT, count)


def metrics(reading: RoleReading, key: str) -> dict[str, float]:
    """One metric by role, of the roles that have it."""
    return {role: numbers[key] for role, numbers in reading.read().items() if key in numbers}


@st.composite
def batches(draw: st.DrawFn) -> PolicyBatch:
    """Any mask, any roles (none at all, an empty role, several in one sequence), rows of their own or packed, float32 or less."""
    rows, length = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9999)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))

    def logprobs() -> Tensor:
        return (-3 * torch.rand(rows, length, generator=generator)).to(dtype)

    mask = torch.rand(rows, length, generator=generator) < draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    packed = pack(rows, length, generator) if draw(st.booleans()) else None
    count = rows if packed is None else int(packed.max()) + 1
    each = (count,) if draw(st.booleans()) else (rows, length)
    named = draw(st.sampled_from([0, 1, 3]))
    roles = torch.randint(NOBODY, named, each, generator=generator) if named else None
    advantages = torch.randn((count,) if draw(st.booleans()) else (rows, length), generator=generator)
    return PolicyBatch(
        logprobs(), mask.to(draw(st.sampled_from([torch.bool, torch.int64, torch.float32]))), roles, ROLES[:named], packed,
        logprobs(), logprobs(), logprobs(), logprobs().abs(), advantages, 0.2, 0.28,
    )  # fmt: skip


def pack(rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Sequences packed into rows, numbered over the batch; the last positions of a row may be padding."""
    starts = torch.rand(rows, length, generator=generator) < 0.3
    starts[:, 0] = True
    numbers = starts.reshape(-1).cumsum(0).view(rows, length) - 1
    numbers[:, length - int(torch.randint(0, length, (), generator=generator)) :] = NOBODY
    _, compact = torch.unique(numbers, return_inverse=True)
    return compact - int((numbers == NOBODY).any())


def poisoned(batch: PolicyBatch, bad: float) -> PolicyBatch:
    """The batch with `bad` wherever nothing enters the loss."""
    outside = (batch.mask_BT == 0) | (sequences_of(batch) < 0)
    names = ("logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "rollout_logprobs_BT", "entropies_BT")
    return replace(batch, **{name: getattr(batch, name).masked_fill(outside, bad) for name in names})
