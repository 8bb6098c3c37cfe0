"""Several roles in one sequence: the gradient of each role's loss, which is not that of its positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities.engines.tiny import (
    VOCABULARY,
    bits,
    cosines,
    gradient,
    hooks_of,
    norms,
    qwen,
    same,
    target_of,
    token_losses,
    tokens,
)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradwatch.quantities.engines.backwards import Backwards
from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.engines.predicted_speakers import predicted_speakers
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles, assign_roles
from gradwatch.quantities.unavailable import Unavailable

SPEAKERS = 3
ROWS, LENGTH = 3, 10
ROLES = torch.tensor([[-1, -1, 0, 0, 0, 1, 1, 0, 1, 1], [-1, 1, 1, 1, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, -1, -1, 0, 0]])


def truth(model: nn.Module, losses: Callable[[], Tensor], owners: Tensor) -> Tensor:
    """The Gram of each role's loss, one backward each."""
    each = torch.stack(
        [gradient(model, lambda k=k: torch.where(owners == k, losses(), 0).sum()) for k in (*range(SPEAKERS - 1), -1)]
    )
    return each @ each.T


def measured(engine: Backwards | Neutral, batch: BatchRoles, losses: Callable[[], Tensor]) -> RoleGradReading | Unavailable:
    engine.begin(batch)
    loss = losses().sum()
    engine.end()
    loss.backward()
    return engine.conclude(engine.sums())


def check(model: nn.Module, losses: Callable[[], Tensor], batch: BatchRoles, owners: Tensor, slack: float = 0.0) -> None:
    gram = truth(model, losses, owners)
    losses().sum().backward()
    plain = bits(model)
    model.zero_grad()
    reading = measured(Backwards(target_of(model, SPEAKERS)), batch, losses)
    assert same(bits(model), plain)
    assert isinstance(reading, RoleGradReading), reading
    there = norms(gram) > 1e-6 * norms(gram).max()
    assert (norms(reading.gram_KK)[there] / norms(gram)[there] - 1).abs().max() <= reading.norm_error + slack
    assert norms(reading.gram_KK)[~there].sum() <= 1e-3 * norms(gram).max()
    difference = cosines(reading.gram_KK)[there][:, there] - cosines(gram)[there][:, there]
    assert difference.abs().max() <= reading.cosine_error + slack
    assert len(reading.covered) == len(list(model.parameters()))


@pytest.mark.parametrize("way", ["tied", "untied", "checkpoint", "bfloat16"])
def test_a_roles_gradient_is_that_of_its_loss_and_no_bit_changes(way: str) -> None:
    model, ids = qwen(tied=way != "untied"), tokens(ROWS, LENGTH)
    if way == "checkpoint":
        model.activation_checkpointing_enable({"use_reentrant": False})
        model.train()
    if way == "bfloat16":
        model.bfloat16()
    slack = 0.01 if way == "bfloat16" else 0.0
    check(model, lambda: token_losses(model, ids), assign_roles(ROLES, 2), ROLES[:, 1:], slack)


def test_autocast_changes_nothing() -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)

    def losses() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return token_losses(model, ids)

    check(model, losses, assign_roles(ROLES, 2), ROLES[:, 1:], slack=0.01)


class Head(nn.Module):
    """A model that is its own output layer, with an operation in place on what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11)

    def forward(self, ids_BT: Tensor) -> Tensor:
        # Each position sees those before it, so that a loss has a gradient at tokens of others.
        return self.head(torch.tanh(self.mix(self.table(ids_BT)).cumsum(1)))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(2, 6))
def test_any_order_of_roles_in_a_sequence_is_told_apart(data: st.DataObject, rows: int, length: int) -> None:
    flat = data.draw(st.lists(st.integers(-1, 1), min_size=rows * length, max_size=rows * length))
    roles = torch.tensor(flat).view(rows, length)
    torch.manual_seed(0)
    model, ids = Head(), torch.randint(0, 11, (rows, length))

    def losses() -> Tensor:
        logits = model(ids)
        logits /= 0.7
        return cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")

    owners = roles[:, 1:]
    batch = assign_roles(roles, 2)
    if not batch.is_mixed_within:
        owners = batch.speaker_N[:, None].expand_as(owners)
    check(model, losses, batch, owners)


def test_splitting_by_position_is_something_else() -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)
    gram = truth(model, lambda: token_losses(model, ids), ROLES[:, 1:])
    by_position = measured(
        Neutral(target_of(model, SPEAKERS), exact_every=0), assign_roles(ROLES, 2), lambda: token_losses(model, ids)
    )
    assert isinstance(by_position, RoleGradReading)
    assert by_position.by_position
    ratio = norms(by_position.gram_KK) / norms(gram)
    assert (ratio - 1).abs().max() > 0.1 > by_position.norm_error


def test_micro_batches_add_up() -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)
    gram = truth(model, lambda: token_losses(model, ids), ROLES[:, 1:])
    engine = Backwards(target_of(model, SPEAKERS))
    for row in range(ROWS):
        reading = measured(engine, assign_roles(ROLES[row : row + 1], 2), lambda row=row: token_losses(model, ids[row : row + 1]))
    assert isinstance(reading, RoleGradReading)
    assert (norms(reading.gram_KK) / norms(gram) - 1).abs().max() <= reading.norm_error


def test_what_a_loss_adds_beside_the_logits_is_nobodys() -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)
    everyone = torch.zeros(ROWS, dtype=torch.long)

    def losses() -> Tensor:
        return token_losses(model, ids).sum() + 10 * model.model.norm.weight.square().sum()

    beside = gradient(model, lambda: 10 * model.model.norm.weight.square().sum())
    reading = measured(Backwards(target_of(model, SPEAKERS)), assign_roles(everyone, 2), losses)
    assert isinstance(reading, RoleGradReading)
    assert float(norms(reading.gram_KK)[-1]) == pytest.approx(float(beside.norm()), rel=reading.norm_error)


def test_a_nan_stays_with_the_role_that_brought_it() -> None:
    torch.manual_seed(0)
    model, ids = Head(), torch.randint(0, 11, (1, 4))
    scale = torch.tensor([1.0, torch.nan, 1.0])
    reading = measured(
        Backwards(target_of(model, SPEAKERS)),
        assign_roles([[0, 0, 1, 0]], 2),
        lambda: model(ids)[:, :-1].square().mean(-1) * scale,
    )
    assert isinstance(reading, RoleGradReading)
    assert norms(reading.gram_KK)[:2].isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("case", "reason"), [("reentrant", "use_reentrant=False"), ("compiled", "compile"), ("no_backward", "no gradient of logits")]
)
def test_where_it_cannot_be_measured_it_says_why_and_changes_no_bit(case: str, reason: str) -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)
    if case == "reentrant":
        model.activation_checkpointing_enable({"use_reentrant": True})
        model.enable_input_require_grads()
        model.train()
    token_losses(model, ids).sum().backward()
    plain = bits(model)
    model.zero_grad()
    if case == "compiled":
        model.compile(backend="eager")
    engine = Backwards(target_of(model, SPEAKERS))
    if case == "no_backward":
        engine.begin(assign_roles(ROLES, 2))
        engine.end()
        reading = engine.conclude(engine.sums())
    else:
        reading = measured(engine, assign_roles(ROLES, 2), lambda: token_losses(model, ids))
        assert same(bits(model), plain)
    assert isinstance(reading, Unavailable)
    assert reason in reading.reason


def test_the_module_that_makes_the_logits_can_be_given() -> None:
    torch.manual_seed(0)
    model, ids = Head(), torch.randint(0, 11, (1, 4))
    roles = assign_roles([[0, 0, 1, 0]], 2)

    def losses() -> Tensor:
        return model(ids)[:, :-1].square()

    given = measured(Backwards(target_of(model, SPEAKERS), output=model.head), roles, losses)
    found = measured(Backwards(target_of(model, SPEAKERS)), roles, losses)
    assert isinstance(given, RoleGradReading)
    assert isinstance(found, RoleGradReading)
    assert torch.allclose(given.gram_KK, found.gram_KK)


@pytest.mark.parametrize(
    ("logits", "owners"),
    [
        (8, [0, 1, 1, 2, 1, 0, 2, 2]),
        (6, [0, 1, 1, 1, 0, 2]),
        (4, [1, 2, 2, 2]),
        (10, None),
        (3, None),
    ],
)
def test_logits_that_were_left_out_are_the_last_of_a_shifted_loss_or_the_first(logits: int, owners: list[int] | None) -> None:
    batch = assign_roles([[0, 0, 1, 1], [-1, 1, 0, -1]], 2)
    found = predicted_speakers(batch, SPEAKERS, logits)
    assert (found if found is None else found.tolist()) == owners


def test_nothing_is_left_on_the_model() -> None:
    model, ids = qwen(), tokens(ROWS, LENGTH)
    before = hooks_of(model)
    engine = Backwards(target_of(model, SPEAKERS))
    measured(engine, assign_roles(ROLES, 2), lambda: token_losses(model, ids))
    assert hooks_of(model) > before
    engine.detach()
    assert hooks_of(model) == before
    assert model.lm_head.weight.shape[0] == VOCABULARY
