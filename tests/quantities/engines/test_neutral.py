"""The token sketch of a mixed batch is, in every way of training, the sketch of the gradient that a separate backward leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantities.engines.tiny import bits, cosines, gradient, hooks_of, norms, qwen, same, target_of, token_losses, tokens
from torch import Tensor, nn
from torch.nn.functional import linear, relu_
from torch.utils.checkpoint import checkpoint

from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.engines.token_sketch import TokenSketch
from gradwatch.quantities.role_gradients import RoleGradReading
from gradwatch.quantities.roles import BatchRoles, assign_roles
from gradwatch.quantities.unavailable import Unavailable

SPEAKERS = 3
IDS = (0, 1, -1, 1)

Losses = Callable[[], Tensor]


def sketched(model: nn.Module, sketch: TokenSketch, own: Tensor) -> Tensor:
    """The sketch of a gradient that is there: PᵀWQ/r of each matrix, and vectors as they are."""
    found_1R, first = torch.zeros(1, sketch.width), 0
    seen = set()
    for index, parameter in enumerate(model.parameters()):
        part = own[first : first + parameter.numel()].view_as(parameter).float()
        first += parameter.numel()
        if id(parameter) in seen or not sketch.holds(index):
            continue
        seen.add(id(parameter))
        if part.dim() == 1:
            sketch.add_vector_(found_1R, index, part[None])
        else:
            sketch.add_matrix_(found_1R, index, (sketch.rows(index, part).T @ part @ sketch.columns(index, part))[None])
    return found_1R[0]


def read(engine: Neutral, loss_scale: float = 1.0) -> RoleGradReading:
    reading = engine.conclude(engine.sums(), loss_scale)
    assert isinstance(reading, RoleGradReading), reading
    return reading


def measured(
    engine: Neutral, model: nn.Module, losses: Losses, batch: BatchRoles, context: AbstractContextManager[object] | None = None
) -> None:
    engine.begin(batch)
    with context or nullcontext():
        loss = losses().sum()
    loss.backward()
    engine.end()


def check(
    model: nn.Module,
    losses: Losses,
    batch: BatchRoles,
    owners: Tensor,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
    rel: float = 2e-4,
) -> Neutral:
    """The engine's sums are the sketches of separate backwards; `owners` says whose each of the losses is, -1 for nobody's."""
    each = [gradient(model, lambda k=k: torch.where(owners == k, losses(), 0).sum(), context()) for k in (*range(SPEAKERS - 1), -1)]
    with context():
        loss = losses().sum()
    loss.backward()
    plain = bits(model)
    model.zero_grad()
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0, rank=5)
    measured(engine, model, losses, batch, context())
    assert same(bits(model), plain)
    model.zero_grad()
    truth = torch.stack([sketched(model, engine.sketch, one) for one in each])
    found = engine.sums().view(SPEAKERS, -1)
    assert (found - truth).norm() <= rel * truth.norm()
    assert len(read(engine).covered) == len(list(model.parameters()))
    return engine


class Net(nn.Module):
    """Every kind of module that is known, some used twice, with operations in place on what they return."""

    def __init__(self, *, eps: float | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.twice = nn.Linear(6, 6)
        self.rms = nn.RMSNorm(6, eps=eps)
        self.plain = nn.Linear(6, 5, bias=False)
        self.head = nn.Linear(5, 11)

    def body(self, h: Tensor) -> Tensor:
        h = relu_(self.twice(self.norm(h)))
        y = self.twice(h)
        y += h
        return self.plain(self.rms(y))

    def forward(self, ids_BT: Tensor) -> Tensor:
        y = self.head(self.body(self.table(ids_BT)))
        return y.mul_(0.5)


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    model = Net()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def row_losses(model: nn.Module, ids_BT: Tensor) -> Tensor:
    return model(ids_BT).float().log_softmax(-1).square().mean(-1)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 6), st.integers(0, 9))
def test_any_batch_of_whole_sequences_is_told_apart(data: st.DataObject, rows: int, length: int, seed: int) -> None:
    roles = data.draw(st.lists(st.integers(-1, SPEAKERS - 2), min_size=rows, max_size=rows))
    model, ids = net(seed), torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(seed))
    check(model, lambda: row_losses(model, ids).sum(1), assign_roles(roles, SPEAKERS - 1), torch.tensor(roles))


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(2, 7), st.integers(0, 9))
def test_packed_sequences_are_told_apart(data: st.DataObject, rows: int, length: int, seed: int) -> None:
    """The net looks at no other position, so that a loss at a position is its sequence's own."""
    numbers = st.lists(st.integers(-1, 2), min_size=rows * length, max_size=rows * length)
    sequences = torch.tensor(data.draw(numbers)).view(rows, length)
    of_sequence = torch.tensor(data.draw(st.lists(st.integers(-1, SPEAKERS - 2), min_size=rows * 4, max_size=rows * 4)))
    roles = of_sequence[torch.arange(rows)[:, None] * 4 + sequences + 1].where(sequences >= 0, -1)
    model, ids = net(seed), torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(seed))
    check(model, lambda: row_losses(model, ids), assign_roles(roles, SPEAKERS - 1, sequences), roles)


@pytest.mark.parametrize("way", ["tied", "untied", "checkpoint", "reentrant", "autocast", "bfloat16", "flat"])
def test_every_way_of_training_gives_the_sketch_of_the_separate_gradients(way: str) -> None:
    model, ids, owners = qwen(tied=way != "untied"), tokens(), torch.tensor(IDS)
    if way in ("checkpoint", "reentrant"):
        model.activation_checkpointing_enable({"use_reentrant": way == "reentrant"})
        model.enable_input_require_grads()
        model.train()
    if way == "bfloat16":
        model.bfloat16()
    low = way in ("autocast", "bfloat16")
    check(
        model,
        lambda: token_losses(model, ids).sum(1),
        assign_roles(IDS, 2),
        owners,
        lambda: torch.autocast("cpu", torch.bfloat16) if way == "autocast" else nullcontext(),
        rel=0.03 if low else 2e-4,
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_part_is_measured_once(reentrant: bool) -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))

    def losses() -> Tensor:
        y = model.head(checkpoint(model.body, model.table(ids), use_reentrant=reentrant))
        return y.square().mean(-1).sum(1)

    check(model, losses, assign_roles(IDS, 2), torch.tensor(IDS))


def test_sequences_of_all_micro_batches_add_up_and_keep_their_order() -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))
    whole = check(model, lambda: row_losses(model, ids).sum(1), assign_roles(IDS, 2), torch.tensor(IDS))
    parts = Neutral(target_of(model, SPEAKERS), exact_every=0, rank=5)
    for rows in (slice(0, 1), slice(1, 4)):
        measured(parts, model, lambda rows=rows: row_losses(model, ids[rows]).sum(1), assign_roles(IDS[rows], 2))
    assert torch.allclose(parts.sums(), whole.sums(), rtol=1e-4, atol=1e-5)
    assert torch.allclose(read(parts).influence_N, read(whole).influence_N, rtol=1e-4)


def test_one_backward_may_go_through_several_passes_that_are_over() -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))
    whole = check(model, lambda: row_losses(model, ids).sum(1), assign_roles(IDS, 2), torch.tensor(IDS))
    parts, loss = Neutral(target_of(model, SPEAKERS), exact_every=0, rank=5), torch.zeros(())
    for rows in (slice(0, 2), slice(2, 4)):
        parts.begin(assign_roles(IDS[rows], 2))
        loss = loss + row_losses(model, ids[rows]).sum()
        parts.end()
    loss.backward()
    assert torch.allclose(parts.sums(), whole.sums(), rtol=1e-4, atol=1e-5)


def test_gpt2s_transposed_layers_are_known_and_its_positions_are_not() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
    )
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: token_losses(model, tokens() % 50), assign_roles(IDS, 2))
    names = [name for name, _ in model.named_parameters()]
    assert {names[index] for index in range(len(names)) if index not in read(engine).covered} == {"transformer.wpe.weight"}


def test_a_weight_used_beside_its_module_is_not_covered() -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: linear(model.body(model.table(ids)), model.head.weight), assign_roles(IDS, 2))
    names = [name for name, _ in model.named_parameters()]
    assert {"head.weight", "head.bias"} == {names[i] for i in range(len(names)) if i not in read(engine).covered}


def test_what_does_not_line_up_once_is_not_covered_at_all() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.randn(4, 5, 3)
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: model[1](model[0](x)) + model[1](x.transpose(0, 1)).transpose(0, 1), assign_roles(IDS, 2))
    reading = read(engine)
    assert reading.covered == {0}
    assert norms(reading.gram_KK)[0] > 0


def test_without_a_module_that_lines_up_it_is_unavailable() -> None:
    model = nn.Linear(3, 1)
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: model(torch.ones(7, 3)), assign_roles(IDS, 2))
    reading = engine.conclude(engine.sums())
    assert isinstance(reading, Unavailable)
    assert "lines up" in reading.reason


def test_a_nan_stays_with_the_role_that_brought_it() -> None:
    model, x = nn.Linear(3, 2), torch.ones(4, 5, 3)
    x[1] = torch.nan
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: model(x), assign_roles(IDS, 2))
    assert norms(read(engine).gram_KK).isnan().tolist() == [False, True, False]


def test_positions_of_several_roles_in_one_sequence_are_told_apart_by_position() -> None:
    model, ids, roles = (
        net(),
        torch.randint(0, 11, (3, 5)),
        torch.randint(-1, 2, (3, 5), generator=torch.Generator().manual_seed(3)),
    )
    engine = check(model, lambda: row_losses(model, ids), assign_roles(roles, 2), roles)
    assert read(engine).by_position
    assert read(engine).influence_N.shape == (3,)


def test_every_so_many_steps_the_reading_is_exact() -> None:
    model, ids, owners = qwen(), tokens(), torch.tensor(IDS)
    each = torch.stack(
        [gradient(model, lambda k=k: torch.where(owners == k, token_losses(model, ids).sum(1), 0).sum()) for k in (0, 1, -1)]
    )
    token_losses(model, ids).sum().backward()
    plain = bits(model)
    engine, errors = Neutral(target_of(model, SPEAKERS), exact_every=3, rank=8), []
    for _ in range(4):
        model.zero_grad()
        measured(engine, model, lambda: token_losses(model, ids), assign_roles(IDS, 2))
        assert same(bits(model), plain)
        reading = read(engine)
        assert reading.engine == "neutral"
        assert reading.influence_N.sum() == pytest.approx(1, abs=1e-3)
        errors.append(float((norms(reading.gram_KK) / norms(each @ each.T) - 1).abs().max()))
        assert errors[-1] <= reading.norm_error
        engine.clear()
    assert [error < 0.01 for error in errors] == [True, False, False, True]


def test_nothing_is_left_on_the_model() -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))
    before = hooks_of(model)
    engine = Neutral(target_of(model, SPEAKERS))
    measured(engine, model, lambda: row_losses(model, ids), assign_roles(IDS, 2))
    assert hooks_of(model) > before
    engine.detach()
    assert hooks_of(model) == before


def test_gradients_are_divided_by_the_loss_scale() -> None:
    model, ids = net(), torch.randint(0, 11, (4, 5))
    engine = Neutral(target_of(model, SPEAKERS), exact_every=0)
    measured(engine, model, lambda: 8 * row_losses(model, ids), assign_roles(IDS, 2))
    assert torch.allclose(norms(read(engine, 8.0).gram_KK) * 8, norms(read(engine).gram_KK))


def test_a_models_norms_and_cosines_are_within_the_error_of_the_reading() -> None:
    model, ids, owners = qwen(), tokens(), torch.tensor(IDS)
    each = torch.stack(
        [gradient(model, lambda k=k: torch.where(owners == k, token_losses(model, ids).sum(1), 0).sum()) for k in (0, 1, -1)]
    )
    gram, kept = each @ each.T, []
    for seed in range(30):
        engine = Neutral(target_of(model, SPEAKERS, seed), exact_every=0)
        measured(engine, model, lambda: token_losses(model, ids), assign_roles(IDS, 2))
        reading = read(engine)
        assert reading.norm_error <= 0.1
        norm = (norms(reading.gram_KK) / norms(gram) - 1).abs().max()
        cosine = (cosines(reading.gram_KK) - cosines(gram)).abs().max()
        kept.append(bool(norm <= reading.norm_error and cosine <= reading.cosine_error))
    assert all(kept)
