"""Micro-batches of one role each: sketches of what each backward leaves, against the gradients themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities.engines.tiny import bits, cosines, flat, gradient, hooks_of, norms, qwen, same, target_of, token_losses, tokens
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from gradwatch.quantities.engines.micro import Micro
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles, assign_roles
from gradwatch.quantities.unavailable import Unavailable

SPEAKERS = 3
ROLES = (0, 1, 0, 1)


def only(role: int, rows: int = 1) -> BatchRoles:
    return assign_roles([role] * rows, SPEAKERS - 1)


def accumulated(
    model: nn.Module,
    engine: Micro | None,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
    roles: tuple[int, ...] = ROLES,
) -> None:
    """One optimizer step's gradients: as many micro-batches as roles, of one sequence each."""
    model.zero_grad()
    for row, role in enumerate(roles):
        if engine:
            engine.begin(only(role))
        with context():
            loss = token_losses(model, tokens()[row : row + 1]).mean()
        loss.backward()
        if engine:
            engine.end()


def read(engine: Micro, loss_scale: float = 1.0) -> RoleGradReading:
    reading = engine.conclude(engine.sums(), loss_scale)
    assert isinstance(reading, RoleGradReading), reading
    return reading


def truth(model: nn.Module, context: Callable[[], AbstractContextManager[object]] = nullcontext) -> Tensor:
    rows = [
        gradient(model, lambda row=row: token_losses(model, tokens()[row : row + 1]).mean(), context()) for row in range(len(ROLES))
    ]
    each = torch.stack([rows[0] + rows[2], rows[1] + rows[3], torch.zeros_like(rows[0])])
    return each @ each.T


def agrees(reading: RoleGradReading, gram: Tensor, slack: float = 0.0) -> None:
    ratio = (norms(reading.gram_KK) / norms(gram))[:2]
    assert (ratio - 1).abs().max() <= reading.norm_error + slack
    assert (cosines(reading.gram_KK)[0, 1] - cosines(gram)[0, 1]).abs() <= reading.cosine_error + slack
    assert reading.gram_KK[2].abs().max() == 0


WAYS = ["plain", "untied", "checkpoint", "reentrant", "autocast", "bfloat16"]


def changed(way: str) -> tuple[nn.Module, Callable[[], AbstractContextManager[object]]]:
    model = qwen(tied=way != "untied")
    if way in ("checkpoint", "reentrant"):
        model.activation_checkpointing_enable({"use_reentrant": way == "reentrant"})
        model.enable_input_require_grads()
        model.train()
    if way == "bfloat16":
        model.bfloat16()
    autocast = way == "autocast"
    return model, lambda: torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()


@pytest.mark.parametrize("way", WAYS)
def test_norms_and_cosines_are_those_of_separate_backwards_and_no_gradient_bit_changes(way: str) -> None:
    model, context = changed(way)
    accumulated(model, None, context)
    plain = bits(model)
    engine = Micro(target_of(model, SPEAKERS))
    for _ in range(2):
        accumulated(model, engine, context)
        assert same(bits(model), plain)
        agrees(read(engine), truth(model, context), slack=0.01 if way == "bfloat16" else 0.0)
        assert len(read(engine).covered) == len(list(model.parameters()))
        engine.clear()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def test_a_compiled_model_is_measured_as_it_is_and_not_compiled_again() -> None:
    torch._dynamo.reset()
    compiler = CompileCounterWithBackend("aot_eager")
    torch.manual_seed(0)
    model = Net()
    engine = Micro(target_of(model, SPEAKERS))
    model.compile(backend=compiler)
    x, grams = torch.ones(2, 4), []
    own = gradient(model, lambda: model(x).sum())
    for _ in range(2):
        engine.begin(only(0, 2))
        model(x).sum().backward()
        engine.end()
        grams.append(float(norms(read(engine).gram_KK)[0]))
        engine.clear()
    model(x).sum().backward()
    assert grams == pytest.approx([float(own.norm())] * 2, rel=1e-5)
    assert compiler.frame_count == 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-1, 1), min_size=1, max_size=6), st.integers(0, 5))
def test_any_order_of_roles_is_told_apart(roles: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    inputs = torch.randn(len(roles), 2, 5)
    each = torch.zeros(SPEAKERS, flat(model).numel(), dtype=torch.float64)
    for role, x in zip(roles, inputs, strict=True):
        each[role] += gradient(model, lambda x=x: model(x).square().sum())
    engine = Micro(target_of(model, SPEAKERS, seed))
    for role, x in zip(roles, inputs, strict=True):
        engine.begin(only(role, 2))
        model(x).square().sum().backward()
        engine.end()
    # So few entries have no bucket in common: the sketch is the gradient, up to signs.
    assert torch.allclose(read(engine).gram_KK, each @ each.T, rtol=1e-4, atol=1e-6)


def test_a_sparse_gradient_is_sketched_as_the_dense_one_is() -> None:
    grams = []
    for sparse in (True, False):
        torch.manual_seed(0)
        table = nn.Embedding(50, 4, sparse=sparse)
        engine = Micro(target_of(table, SPEAKERS))
        for role in (0, 1):
            engine.begin(only(role))
            table(torch.tensor([3, 7 + role, 3])).square().sum().backward()
            engine.end()
        grams.append(read(engine).gram_KK)
    assert torch.allclose(*grams, rtol=1e-5)


def test_what_is_frozen_is_not_covered_until_it_trains() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    engine = Micro(target_of(model, SPEAKERS))
    seen = []
    for _ in range(2):
        engine.begin(only(0))
        model(torch.ones(1, 3)).sum().backward()
        engine.end()
        seen.append(read(engine).covered)
        engine.clear()
        model.requires_grad_(True)
    assert seen == [{2, 3}, {0, 1, 2, 3}]


def test_gradients_are_divided_by_the_loss_scale() -> None:
    model = nn.Linear(3, 1)
    engine = Micro(target_of(model, SPEAKERS))
    engine.begin(only(0))
    (model(torch.ones(1, 3)).sum() * 1024).backward()
    engine.end()
    assert norms(read(engine, 1024.0).gram_KK)[0] == pytest.approx(2.0, rel=1e-5)


def test_a_nan_stays_with_the_role_that_brought_it() -> None:
    model = nn.Linear(3, 1)
    engine = Micro(target_of(model, SPEAKERS))
    for role, value in ((0, 1.0), (1, torch.nan)):
        engine.begin(only(role))
        model(torch.full((1, 3), value)).sum().backward()
        engine.end()
    found = norms(read(engine).gram_KK)
    assert found[0] == pytest.approx(2.0, rel=1e-5)
    assert found[1].isnan()


def test_a_backward_without_roles_is_nobodys() -> None:
    model = nn.Linear(3, 1)
    engine = Micro(target_of(model, SPEAKERS))
    engine.begin(only(0))
    model(torch.ones(1, 3)).sum().backward()
    engine.end()
    (2 * model(torch.ones(1, 3)).sum()).backward()
    assert norms(read(engine).gram_KK).tolist() == pytest.approx([2.0, 0.0, 4.0], rel=1e-5)
    assert norms(read(engine).gram_KK.sum().view(1, 1))[0] == pytest.approx(float(flat(model).norm()), rel=1e-5)


@pytest.mark.parametrize("case", ["mixed", "outside", "nothing"])
def test_what_cannot_be_told_apart_is_unavailable_with_a_reason(case: str) -> None:
    model = nn.Linear(3, 1)
    engine = Micro(target_of(model, SPEAKERS))
    engine.begin(assign_roles([0, 1], 2) if case == "mixed" else only(0, 2))
    loss = model(torch.ones(2, 3)).sum()
    engine.end()
    if case == "outside":
        loss.backward()
    reading = engine.conclude(engine.sums())
    assert isinstance(reading, Unavailable)
    assert {"mixed": "one role each", "outside": "before they are closed", "nothing": "no gradient arrived"}[case] in reading.reason


def test_nothing_is_left_on_the_model() -> None:
    model = qwen()
    before = hooks_of(model)
    engine = Micro(target_of(model, SPEAKERS))
    accumulated(model, engine)
    assert hooks_of(model) > before
    engine.detach()
    assert hooks_of(model) == before
