"""The engines `exact` and `split` against separate backward passes, over what training loops do with a model."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities.engines.slow_twin import Pass, measure, off, separate_gradients, target
from quantities.engines.tiny import bits, hooks_of, qwen, same, token_losses, tokens
from torch import Tensor, nn
from torch.nn.functional import relu_, silu
from torch.utils.checkpoint import checkpoint

from gradwatch.quantities import Unavailable
from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.split import Split
from gradwatch.quantities.engines.tapped import Tapped
from gradwatch.quantities.roles import assign_roles

SPEAKERS = [0, 2, 3, 0, 2, 0]  # of four: the second has no row, the last is the unassigned one
ENGINES = pytest.mark.parametrize("kind", [Exact, Split])


def language(model: nn.Module, seed: int = 1) -> Pass:
    ids_BT = tokens(len(SPEAKERS), seed=seed)
    return Pass(lambda: token_losses(model, ids_BT).sum(1), SPEAKERS)


def vectors(model: nn.Module, size: int, shape: tuple[int, ...] = (6, 5), seed: int = 1) -> Pass:
    x = torch.randn(*shape, size, generator=torch.Generator().manual_seed(seed))
    return Pass(lambda: model(x).float().square().flatten(1).sum(1), SPEAKERS)


def plain_gradients(model: nn.Module, passes: list[Pass]) -> list[Tensor | None]:
    model.zero_grad()
    for one in passes:
        one.losses().sum().backward()
    found = bits(model)
    model.zero_grad()
    return found


def check(kind: type[Tapped], model: nn.Module, passes: list[Pass], *, limit: float = 1e-6, together: bool = False) -> None:
    """Three steps, with all parameters covered; by `exact` the model's gradients are what they are without, bit by bit."""
    to = target(model, 4)
    truth = separate_gradients(to, passes)
    expected = plain_gradients(model, passes)
    engine = kind(to)
    for _ in range(3):
        reading = measure(engine, passes, 4, together=together)
        assert reading.covered == frozenset(range(len(to.parameters)))
        assert off(reading, truth) <= max(limit, 2 * float(reading.norm_error))
        if kind is Exact and not together:
            assert same(bits(model), expected)
        assert reading.norm_error <= 0.01
        engine.clear()
        model.zero_grad()
    engine.detach()
    assert not hooks_of(model)
    assert not any("forward" in vars(module) for module in model.modules())


@ENGINES
@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model_is_measured_exactly(kind: type[Tapped], tied: bool) -> None:
    model = qwen(tied=tied)
    check(kind, model, [language(model)])


@ENGINES
def test_a_pass_of_one_backward_is_exact_to_float32(kind: type[Tapped]) -> None:
    model = qwen(tied=False)
    to = target(model, 4)
    one = language(model)
    reading = measure(kind(to), [one], 4)
    assert reading.norm_error == 1e-6
    assert off(reading, separate_gradients(to, [one])) <= 1e-6


@ENGINES
@pytest.mark.parametrize("together", [False, True])
def test_micro_batches_add_up_whether_they_share_a_backward_or_not(kind: type[Tapped], together: bool) -> None:
    model = qwen()
    check(kind, model, [language(model, seed) for seed in range(3)], together=together)


class Checkpointed(nn.Module):
    """Two blocks that are computed again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@ENGINES
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_are_measured_once_each(kind: type[Tapped], reentrant: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    to = target(model, 4)
    passes = [vectors(model, 8, seed=seed) for seed in range(2)]
    truth = sum(_twin(model, reentrant, seed) for seed in range(2))
    engine = kind(to)
    for _ in range(2):
        reading = measure(engine, passes, 4)
        assert off(reading, truth) <= 1e-6
        assert len(reading.covered) == len(to.parameters)
        engine.clear()


def _twin(model: nn.Module, reentrant: bool, seed: int) -> Tensor:
    """`torch.autograd.grad` refuses reentrant checkpoints: the same model without them."""
    plain = deepcopy(model)
    plain.forward = lambda x: plain.blocks[1](plain.blocks[0](x))  # type: ignore[assignment]
    return separate_gradients(target(plain, 4), [vectors(plain, 8, seed=seed)])


def test_a_checkpointed_pass_that_is_not_measured_goes_on_beside_one_that_is() -> None:
    model = Checkpointed(reentrant=False)
    engine = Exact(target(model, 4))
    measured, other = vectors(model, 8), vectors(model, 8, seed=2)
    engine.begin(measured.roles(4))
    first = measured.losses().sum()
    engine.end()
    (first + other.losses().sum()).backward()
    reading = engine.conclude(None)
    assert not isinstance(reading, Unavailable)
    assert off(reading, _twin(model, False, 1)) <= 1e-6


@ENGINES
def test_autocast_and_bfloat16_are_measured_to_their_rounding(kind: type[Tapped]) -> None:
    model = qwen(tied=False)
    ids_BT = tokens(len(SPEAKERS))

    def losses() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return token_losses(model, ids_BT).sum(1)

    check(kind, model, [Pass(losses, SPEAKERS)], limit=0.005)
    half = qwen(tied=False).bfloat16()
    check(kind, half, [language(half)], limit=0.005)


class Reused(nn.Module):
    """One layer twice in a pass, and one weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.twice, self.first, self.second = (nn.Linear(8, 8) for _ in range(3))
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.twice(self.twice(x).tanh())).tanh())


@ENGINES
@pytest.mark.parametrize("small", [16_384, 0])
def test_a_weight_that_is_used_twice_is_measured_once(kind: type[Tapped], small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "small", small)
    model = Reused()
    check(kind, model, [vectors(model, 8)])


class InPlace(nn.Module):
    """What comes out of layers is written to, directly and through views."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=bias) for _ in range(4))
        self.norm = nn.LayerNorm(8, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth = self.layers
        y = relu_(first(x))
        y = second(y)
        y += x
        z = third(y)
        z.view(-1, 8)[:, :3].mul_(2)
        z[..., 4].zero_()
        return silu(self.norm(fourth(z.sin())).add_(1), inplace=True)


@ENGINES
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_may_be_written_to(kind: type[Tapped], bias: bool) -> None:
    model = InPlace(bias=bias)
    check(kind, model, [vectors(model, 8)])


class Positions(nn.Module):
    """A learnt position embedding, shared by all rows, which may be as many as there are positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places, self.head = nn.Embedding(30, 8, padding_idx=0), nn.Embedding(6, 8), nn.Linear(8, 30)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.head(self.words(ids_BT) + self.places(torch.arange(ids_BT.shape[1])))


@ENGINES
def test_a_module_whose_rows_are_not_the_batchs_is_left_out(kind: type[Tapped]) -> None:
    model = Positions()
    ids_BT = torch.randint(0, 30, (6, 6), generator=torch.Generator().manual_seed(0))
    one = Pass(lambda: model(ids_BT).square().flatten(1).sum(1), SPEAKERS)
    to = target(model, 4)
    engine = kind(to)
    for _ in range(2):
        reading = measure(engine, [one], 4)
        assert reading.covered == {index for index, member in enumerate(to.parameters) if "places" not in member.name}
        assert off(reading, separate_gradients(to, [one], reading.covered)) <= 1e-6
        engine.clear()


@ENGINES
def test_without_gradients_nothing_is_touched(kind: type[Tapped]) -> None:
    model = qwen()
    engine = kind(target(model, 4))
    ids_BT = tokens(6)
    with torch.no_grad():
        before = model(ids_BT).logits
        engine.begin(assign_roles(SPEAKERS, 4))
        assert torch.equal(model.eval()(ids_BT).logits, before)
    assert isinstance(engine.conclude(None), Unavailable)


@ENGINES
def test_a_copy_of_a_tapped_model_works_by_itself(kind: type[Tapped]) -> None:
    model = qwen()
    engine = kind(target(model, 4))
    copied = deepcopy(model)
    one = language(model)
    reading = measure(engine, [one], 4)
    language(copied).losses().sum().backward()
    assert off(reading, separate_gradients(target(model, 4), [one])) <= 1e-6


@ENGINES
def test_packed_rows_are_told_apart_by_position(kind: type[Tapped]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
    x_BTD = torch.randn(2, 6, 8)
    ids_BT = torch.tensor([[0, 0, 1, 1, 1, -1], [1, 1, 1, 0, 0, 0]])
    sequences_BT = torch.tensor([[0, 0, 1, 1, 1, -1], [2, 2, 2, 3, 3, 3]])
    to = target(model, 3)
    engine = kind(to)
    engine.begin(assign_roles(ids_BT, 2, sequences_BT))
    model(x_BTD).square().sum().backward()
    reading = engine.conclude(None)
    assert not isinstance(reading, Unavailable)
    flat = Pass(lambda: model(x_BTD.view(12, 8)).square().sum(1), [one % 3 for one in ids_BT.flatten().tolist()])
    assert off(reading, separate_gradients(to, [flat])) <= 1e-6
    assert not reading.by_position


def test_the_loss_scale_is_divided_out() -> None:
    model = qwen()
    engine = Exact(target(model, 4))
    one = language(model)
    engine.begin(one.roles(4))
    (one.losses().sum() * 1024).backward()
    scaled = engine.conclude(None, torch.tensor(1024.0))
    engine.clear()
    model.zero_grad()
    plain = measure(engine, [one], 4)
    assert not isinstance(scaled, Unavailable)
    torch.testing.assert_close(scaled.gram_KK, plain.gram_KK, rtol=1e-6, atol=0)


@ENGINES
def test_a_nan_stays_with_the_speaker_that_has_it(kind: type[Tapped]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3))
    x = torch.randn(6, 5, 8)
    x[1, 2, 3] = torch.nan  # of speaker 2
    one = Pass(lambda: model(x).square().flatten(1).sum(1), SPEAKERS)
    gram_KK = measure(kind(target(model, 4)), [one], 4).gram_KK
    assert gram_KK[2].isnan()[[0, 2, 3]].all()
    assert gram_KK[[0, 3]][:, [0, 3]].isfinite().all()


@ENGINES
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_shape_and_assignment_equals_separate_backwards(kind: type[Tapped], data: st.DataObject) -> None:
    sizes = st.integers(1, 5)
    rows, length, width, speakers = (data.draw(one) for one in (sizes, sizes, st.integers(2, 6), st.integers(2, 5)))
    who = data.draw(st.lists(st.integers(0, speakers - 1), min_size=rows, max_size=rows))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    model = nn.Sequential(
        nn.Embedding(7, width), nn.RMSNorm(width), nn.Linear(width, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)
    )
    ids_BT = torch.randint(0, 7, (rows, length))
    mask_BT = torch.rand(rows, length) < data.draw(st.sampled_from([0.3, 1.0]))
    one = Pass(lambda: (model(ids_BT).square().sum(-1) * mask_BT).sum(1), who)
    to = target(model, speakers)
    assert off_or_zero(kind, one, to) <= 2e-6


def off_or_zero(kind: type[Tapped], one: Pass, to: object) -> float:
    from gradwatch.quantities.engines.engine import Target

    assert isinstance(to, Target)
    truth = separate_gradients(to, [one])
    reading = measure(kind(to), [one], to.speakers)
    return off(reading, truth) if truth.any() else float(reading.gram_KK.abs().max())


def test_nothing_that_can_be_tapped_says_so() -> None:
    engine = Exact(target(nn.Conv1d(3, 4, 1), 2))
    found = engine.conclude(engine.sums())
    assert isinstance(found, Unavailable)
    assert "none of the parameters" in found.reason
