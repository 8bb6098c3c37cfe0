"""Engines cost a user's pass nothing but time, whatever the pass does: they measure, or say why not."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from loops.speaking import Speaking, losses, tokens
from quantities.engines.slow_twin import target
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradwatch.quantities.engines.backwards import Backwards
from gradwatch.quantities.engines.engine import Engine, Target
from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.micro import Micro
from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.engines.split import Split
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.unavailable import Unavailable

MIXED = BatchRoles(8, torch.tensor([0, 1] * 4))
SAME = BatchRoles(8, torch.zeros(8, dtype=torch.int64))
ENGINES = [Exact, Split, Neutral, Backwards, Micro]


def batch_for(kind: type[Engine]) -> BatchRoles:
    return SAME if kind is Micro else MIXED


class Checkpointed(Speaking):
    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = checkpoint(lambda x: torch.tanh(self.mix(self.norm(x))), self.embed(ids), use_reentrant=False)
        return self.head(hidden)


@pytest.mark.parametrize("kind", [Exact, Split, Neutral])
@pytest.mark.parametrize("when", ["before the roles", "after the step", "after detach"])
def test_a_checkpointed_pass_whose_backward_comes_at_another_time_still_has_one(kind: type[Engine], when: str) -> None:
    model, twin = Checkpointed(), Checkpointed()
    engine = kind(target(model, 3))
    if when == "before the roles":
        late = losses(model, tokens(0)).mean()
        engine.begin(MIXED)
    else:
        engine.begin(MIXED)
        late = losses(model, tokens(0)).mean()
        engine.end()
        engine.detach() if when == "after detach" else engine.clear()
    late.backward()
    losses(twin, tokens(0)).mean().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(
            one.grad, other.grad, rtol=0 if kind is not Split else 1e-5, atol=0 if kind is not Split else 1e-7
        )
    engine.detach()
    assert not any(one._forward_hooks or "forward" in vars(one) for one in model.modules())


def test_a_compiled_pass_keeps_every_gradient_where_an_engine_only_looks() -> None:
    torch._dynamo.reset()
    model, twin = Speaking(), Speaking()
    compiled = torch.compile(model, backend="eager")
    engine = Neutral(target(model, 3))
    engine.begin(MIXED)
    losses(compiled, tokens(0)).mean().backward()
    losses(twin, tokens(0)).mean().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    assert isinstance(engine.conclude(engine.sums()), Unavailable)
    engine.detach()


class WithPhase(Speaking):
    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.ones(11, dtype=torch.complex64))

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.phase.abs()


@pytest.mark.parametrize("kind", ENGINES)
def test_a_gradient_that_cannot_be_measured_costs_the_reading_and_not_the_backward(kind: type[Engine]) -> None:
    model = WithPhase()
    engine = kind(target(model, 3))
    engine.begin(batch_for(kind))
    losses(model, tokens(0)).mean().backward()
    got = engine.conclude(engine.sums())
    assert model.phase.grad is not None
    assert isinstance(got, RoleGradReading if kind in (Exact, Split, Neutral) else Unavailable)
    engine.detach()


@pytest.mark.parametrize("kind", ENGINES)
def test_transforms_of_functions_pass_by(kind: type[Engine]) -> None:
    model = Speaking()
    engine = kind(target(model, 3))
    engine.begin(batch_for(kind))
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def loss(own: dict[str, Tensor], ids: Tensor) -> Tensor:
        return torch.func.functional_call(model, own, (ids[None],)).square().mean()

    torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, tokens(0))
    losses(model, tokens(0)).mean().backward()
    assert isinstance(engine.conclude(engine.sums()), RoleGradReading)
    engine.detach()


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("how", ["deepcopy", "save"])
def test_a_copy_of_a_model_works_and_is_not_measured(kind: type[Engine], how: str) -> None:
    model = Speaking()
    engine = kind(target(model, 3))
    engine.begin(batch_for(kind))
    kept = losses(model, tokens(0)).mean()
    twin = copy.deepcopy(model) if how == "deepcopy" else loaded(model)
    losses(twin, tokens(1)).mean().backward()
    assert isinstance(engine.conclude(engine.sums()), Unavailable)
    kept.backward()
    assert isinstance(engine.conclude(engine.sums()), RoleGradReading)
    engine.detach()


def loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again: nn.Module = torch.load(file, weights_only=False)
    return again


def test_what_no_longer_trains_is_out_of_the_sketch() -> None:
    model = Speaking()
    members = target(model, 3)
    engine = Neutral(Target(model, members.parameters, 3), exact_every=0)
    model.mix.requires_grad_(False)
    model.embed.requires_grad_(False)
    engine.begin(SAME)
    losses(model, tokens(0)).mean().backward()
    got = engine.conclude(engine.sums())
    assert isinstance(got, RoleGradReading)
    whole = sum(float(one.grad.square().sum()) for one in model.parameters() if one.grad is not None)
    assert float(got.gram_KK.sum()) == pytest.approx(whole, rel=0.05)
    engine.detach()
