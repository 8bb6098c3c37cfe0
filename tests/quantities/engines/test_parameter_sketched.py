"""What `exact` and `split` sketch, because it has to add up: its error stays within what the reading says."""

from __future__ import annotations

import pytest
import torch
from quantities.engines.slow_twin import Pass, cosines_off, measure, norm_off, separate_gradients, target
from quantities.engines.tiny import qwen, token_losses, tokens
from torch import Tensor, nn

from gradwatch.quantities import Unavailable
from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.split import Split
from gradwatch.quantities.engines.tapped import Tapped

SPEAKERS = [0, 1, 2, 0, 3, 2, 1, 3]
ENGINES = pytest.mark.parametrize("kind", [Exact, Split])


class Wide(nn.Module):
    """Weights large enough that their sketches collide: 0.6 million entries."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.words, self.middle, self.norm, self.head = (
            nn.Embedding(500, 256),
            nn.Linear(256, 1024),
            nn.RMSNorm(1024),
            nn.Linear(1024, 200),
        )

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.head(self.norm(self.middle(self.words(ids_BT)).relu()))


def wide(seed: int) -> tuple[nn.Module, list[Pass]]:
    model = Wide(seed)
    batches = [
        torch.randint(0, 500, (len(SPEAKERS), 6), generator=torch.Generator().manual_seed(one)) for one in (seed, seed + 100)
    ]
    return model, [Pass(lambda ids=ids: model(ids).square().mean(-1).sum(1), SPEAKERS) for ids in batches]


@ENGINES
def test_sketched_norms_are_within_one_percent_and_cosines_within_their_bound(kind: type[Tapped]) -> None:
    norms, cosines = [], []
    for seed in range(6):
        model, passes = wide(seed)
        to = target(model, 4, is_spread=True, seed=seed)
        reading = measure(kind(to), passes, 4)
        truth = separate_gradients(to, passes)
        norms.append(norm_off(reading, truth))
        cosines.append(cosines_off(reading, truth))
        assert norms[-1].abs().max() <= reading.norm_error
        assert cosines[-1].abs().max() <= reading.cosine_error
    assert torch.cat(norms).abs().max() <= 0.01
    assert torch.cat(cosines).square().mean().sqrt() <= 0.005
    assert torch.cat(cosines).abs().max() <= 0.016


@ENGINES
def test_sums_of_two_processes_are_those_of_the_whole(kind: type[Tapped]) -> None:
    model, passes = wide(0)
    to = target(model, 4, is_spread=True)
    parts = []
    for one in passes:
        engine = kind(to)
        measure(engine, [one], 4)
        parts.append(engine.sums())
    whole = kind(to)
    measure(whole, passes, 4)
    sums = whole.sums()
    assert sums is not None
    torch.testing.assert_close(parts[0] + parts[1], sums, rtol=1e-5, atol=1e-5 * float(sums.abs().max()))


@ENGINES
def test_the_first_step_is_right_whether_it_has_one_backward_or_several(kind: type[Tapped]) -> None:
    for count in (1, 2):
        model, passes = wide(count)
        to = target(model, 4)
        truth = separate_gradients(to, passes[:count])
        engine = kind(to)
        for _ in range(2):
            reading = measure(engine, passes[:count], 4)
            assert norm_off(reading, truth).abs().max() <= reading.norm_error
            assert (reading.norm_error > 1e-6) == (count == 2)
            assert len(reading.covered) == len(to.parameters)
            engine.clear()


@ENGINES
def test_more_backwards_than_a_step_had_before_leave_the_large_weights_out_once(kind: type[Tapped]) -> None:
    model, passes = wide(3)
    to = target(model, 4)
    engine = kind(to)
    measure(engine, passes[:1], 4)
    engine.clear()
    reading = measure(engine, passes, 4)
    small = {index for index, one in enumerate(to.parameters) if one.parameter.numel() <= 16_384}
    assert reading.covered == small
    assert norm_off(reading, separate_gradients(to, passes, small)).abs().max() <= 1e-6
    engine.clear()
    assert len(measure(engine, passes, 4).covered) == len(to.parameters)


class Routed(nn.Module):
    """A layer that now and then gets other rows than the batch's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.other = nn.Linear(256, 256), nn.Linear(256, 256)
        self.experts = nn.ModuleList([nn.Linear(256, 256)])

    def forward(self, x_BTD: Tensor) -> Tensor:
        y = self.layer(x_BTD).flatten(0, 1)
        picked = self.other(y[: len(y) // 2 + 1])
        return y.sum() + picked.sum() + self.experts[0](y[: len(x_BTD)]).sum()


@ENGINES
@pytest.mark.parametrize("is_spread", [False, True])
def test_layers_with_other_rows_than_the_batchs_are_left_out(kind: type[Tapped], is_spread: bool) -> None:
    model = Routed()
    to = target(model, 4, is_spread=is_spread)
    engine = kind(to)
    one = Pass(lambda: model(torch.ones(8, 3, 256)), SPEAKERS)
    for _ in range(2):
        assert measure(engine, [one], 4).covered == {0, 1}
        engine.clear()


@ENGINES
def test_a_large_weight_in_some_passes_only_spoils_one_sketch_and_is_left_out_then(kind: type[Tapped]) -> None:
    model, passes = wide(4)
    extra = nn.Linear(200, 200)
    both = nn.ModuleList([model, extra])
    ids = torch.zeros(len(SPEAKERS), 6, dtype=torch.long)
    passes.append(Pass(lambda: extra(model(ids)).square().mean(-1).sum(1), SPEAKERS))
    to = target(both, 4, is_spread=True)
    engine = kind(to)
    for one in passes:
        engine.begin(one.roles(4))
        one.losses().sum().backward()
    assert isinstance(engine.conclude(engine.sums()), Unavailable)
    engine.clear()
    reading = measure(engine, passes, 4)
    assert {to.parameters[index].name for index in range(len(to.parameters)) if index not in reading.covered} == {
        "1.weight",
        "1.bias",
    }
    assert norm_off(reading, separate_gradients(to, passes, reading.covered)).abs().max() <= reading.norm_error


def test_a_language_model_with_several_backwards_keeps_its_bound() -> None:
    model = qwen(layers=3)
    ids = [tokens(4, seed=seed) for seed in range(3)]
    passes = [Pass(lambda one=one: token_losses(model, one).sum(1), [0, 1, 0, 1]) for one in ids]
    reading = measure(Exact(target(model, 2, is_spread=True)), passes, 2)
    assert norm_off(reading, separate_gradients(target(model, 2), passes)).abs().max() <= reading.norm_error
