"""Role gradients in a verl worker: what the batches say, where it lies in the model's input, and what comes of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, cast

import pytest
import torch
from hooks.verl_stub import Engine, TokenModel, jagged  # noqa: TID251 - the folder of these tests
from torch import Tensor

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch_hooks.verl import watch_engines, watch_worker
from gradwatch_hooks.verl.worker import ENGINE_MODULE
from gradwatch_hooks.watching.record import StepRecord

ROLES = ("solver", "verifier")
LENGTHS = (3, 5, 2, 4)
SPEAKERS = torch.tensor([0, 1, 1, 0])


def sequences() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, 11, (length,), generator=generator) for length in LENGTHS]


def micro_batch(**more: Any) -> dict[str, Any]:
    rows = sequences()
    return {"input_ids": jagged(rows), "loss_mask": jagged([torch.ones(len(one)) for one in rows]), **more}


def loss_of(model_output: Tensor, data: Mapping[str, Any]) -> Tensor:
    """Σ (1 + row) · log p over rows, whichever way they lie in the model's output."""
    rows = data["input_ids"].unbind()
    ends = torch.tensor([len(one) for one in rows]).cumsum(0).tolist()
    if len(model_output) == 1 and len(rows) > 1:
        found = [model_output[0, end - len(one) : end] for one, end in zip(rows, ends, strict=True)]
    else:
        found = [model_output[at, : len(one)] for at, one in enumerate(rows)]
    return cast(Tensor, sum((1 + at) * one.square().sum() for at, one in enumerate(found)))


def true_norms(speakers: Sequence[int]) -> list[float]:
    """The norm of each role's gradient by a backward of its own."""
    norms = []
    for role in range(len(ROLES)):
        net = TokenModel()
        for at, ids in enumerate(sequences()):
            if speakers[at] == role:
                ((1 + at) * net(ids[None]).square().sum()).backward()
        norms.append(float(torch.stack([one.grad.norm() for one in net.parameters() if one.grad is not None]).norm()))
    return norms


class Watched:
    """A worker's engine on `TokenModel`, watched; `records` are what it measured."""

    def __init__(self, **options: Any) -> None:
        self.model = TokenModel()
        self.engine = Engine(self.model, torch.optim.SGD(self.model.parameters(), 0.01))
        self.records: list[StepRecord] = []
        self.watch = watch_worker(
            self.engine, roles=ROLES, max_overhead=None, on_record=self.records.append, **{"engine": "split", **options}
        )

    def norms(self, at: int = 0) -> list[float]:
        roles = self.records[at].roles
        assert isinstance(roles, RoleGradients)
        return [roles.norm(role) for role in ROLES]


@pytest.fixture
def watched() -> Any:
    made: list[Watched] = []

    def make(**options: Any) -> Watched:
        made.append(Watched(**options))
        return made[-1]

    gradwatch.init(mode="disabled", quiet=True)
    yield make
    for one in made:
        one.watch.detach()


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_MODE", "disabled")


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({}, id="padded"),
        pytest.param({"use_remove_padding": True}, id="packed"),
        pytest.param({"use_remove_padding": True, "pad": 5}, id="packed, and padded to a length"),
    ],
)
@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"role_ids": SPEAKERS}, id="ids"),
        pytest.param(
            {"role_ids": jagged([torch.full((n,), int(k)) for n, k in zip(LENGTHS, SPEAKERS, strict=True)])}, id="by token"
        ),
        pytest.param({"agent_id": ["solver", "verifier", "verifier", "solver"]}, id="agents"),
        pytest.param({"extra_fields": [{"agent_id": ROLES[int(k)]} for k in SPEAKERS]}, id="extra fields"),
    ],
)
def test_role_norms_are_those_of_separate_backwards(watched: Any, layout: dict[str, Any], said: dict[str, Any]) -> None:
    one = watched()
    one.engine.train_batch([micro_batch(**layout, **said)], loss_of)
    assert one.norms() == pytest.approx(true_norms(SPEAKERS.tolist()), rel=0.01)
    counts = one.records[0].roles.counts
    assert list(counts[:2]) == [7.0, 7.0]


def test_roles_stay_open_until_the_backward_is_over(watched: Any) -> None:
    one = watched()
    one.engine.module.forward = lambda ids: torch.utils.checkpoint.checkpoint(  # type: ignore[method-assign]
        TokenModel.forward, one.model, ids, use_reentrant=False
    )
    one.engine.train_batch([micro_batch(role_ids=SPEAKERS), micro_batch(role_ids=1 - SPEAKERS)], loss_of)
    assert one.records[0].grad_norm > 0
    assert isinstance(one.records[0].roles, RoleGradients)
    assert one.watch.watcher.failures == 0


def test_passes_without_gradients_have_no_roles(watched: Any) -> None:
    one = watched()
    one.engine.infer_batch([micro_batch(role_ids=torch.tensor([9, 9, 9, 9]))], loss_of)
    assert one.records == []
    one.engine.train_batch([micro_batch(role_ids=SPEAKERS)], loss_of)
    assert len(one.records) == 1


def test_a_part_of_a_sequence_has_norms_and_no_roles(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = watched()
    one.engine.prepare_model_inputs = (  # another rank has the other half
        lambda micro_batch: ({"input_ids": micro_batch["input_ids"].values()[None, :7]}, {})
    )
    one.watch.detach()
    one.watch = watch_worker(one.engine, roles=ROLES, on_record=one.records.append)
    one.engine.train_batch([micro_batch(role_ids=SPEAKERS)], lambda model_output, data: model_output.sum())
    assert one.records[0].grad_norm > 0
    assert one.records[0].roles is None
    assert "sequence parallelism" in caplog.text


def test_batches_that_name_nobody_have_norms_and_are_told_of(watched: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = watched()
    one.engine.train_batch([micro_batch()], loss_of)
    assert one.records[0].grad_norm > 0
    assert one.records[0].roles is None
    assert "add_role_ids" in caplog.text


def test_the_trainers_own_step_is_taken_where_it_is_asked_for(watched: Any) -> None:
    one = watched(steps="trainer")
    for step in (17, 18):
        one.engine.train_batch([micro_batch(role_ids=SPEAKERS, global_steps=step)], loss_of)
    one.engine.train_batch([micro_batch(role_ids=SPEAKERS)], loss_of)
    assert [record.step for record in one.records] == [17, 18, 19]


def test_a_step_that_a_scaler_leaves_out_is_recorded_once_and_as_skipped() -> None:
    model = TokenModel()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    engine = Engine(model, torch.optim.SGD(model.parameters(), 0.01), scaler=scaler)
    records: list[StepRecord] = []
    with watch_worker(engine, gradwatch.init(mode="disabled"), roles=ROLES, on_record=records.append):
        for factor in (1.0, math.inf, 1.0):
            engine.train_batch(
                [micro_batch(role_ids=SPEAKERS, factor=factor)],
                lambda model_output, data: loss_of(model_output, data) * data["factor"],
            )
    assert [(record.step, record.skipped, record.loss_scale) for record in records] == [
        (0, False, 1024.0),
        (1, True, 1024.0),
        (2, False, 512.0),
    ]


@pytest.mark.parametrize(
    ("worker", "match"),
    [
        (object(), "has no forward_step"),
        (Engine(TokenModel(), None), "no optimizer"),
    ],
)
def test_a_worker_that_trains_nothing_is_refused(worker: Any, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        watch_worker(worker, roles=ROLES)


def test_an_actor_or_training_worker_is_watched_by_its_engine() -> None:
    class Worker:
        engine = Engine(TokenModel(), None)

    class ActorRolloutRefWorker:
        actor = Worker()

    for worker in (Worker(), ActorRolloutRefWorker()):
        with pytest.raises(SettingsError, match="no optimizer"):
            watch_worker(worker)
    model = TokenModel()
    engine = Engine(model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(SettingsError, match="steps='day'"):
        watch_worker(engine, steps="day")


class Initialized(Engine):
    """An engine that builds its model, again and again."""

    def __init__(self) -> None: ...

    def initialize(self) -> None:
        model = TokenModel()
        super().__init__(model, torch.optim.SGD(model.parameters(), 0.1))


class WithValueHead(Initialized):
    """The critic's: verl names it so."""


def test_engines_are_watched_when_they_are_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, ENGINE_MODULE, vars_of(FSDPEngine=Initialized))
    records: list[StepRecord] = []
    restore = watch_engines(ROLES, on_record=records.append)
    actor, critic = Initialized(), WithValueHead()
    for engine in (actor, critic):
        engine.initialize()
        engine.train_batch([micro_batch(role_ids=SPEAKERS)], loss_of)
    assert [isinstance(record.roles, RoleGradients) for record in records] == [True, False]
    actor.initialize()
    actor.train_batch([micro_batch(role_ids=SPEAKERS)], loss_of)
    assert len(records) == 3
    restore()
    for engine in (actor, critic):
        cast(Any, engine).gradwatch.detach()
        engine.train_batch([micro_batch(role_ids=SPEAKERS)], loss_of)
    Initialized().initialize()
    assert len(records) == 3


def vars_of(**contents: Any) -> ModuleType:
    module = ModuleType("stub")
    vars(module).update(contents)
    return module
