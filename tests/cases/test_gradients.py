"""Public reports about gradient hooks, from a training loop to what is read back."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from cases.site import Site
from torch import nn

import gradwatch
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.torch import StepRecord, watch


@pytest.fixture
def run(site: Site) -> Iterator[gradwatch.Run]:
    with gradwatch.init(id="r", quiet=True) as one:
        yield one


def net(depth: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)))


def norms(site: Site, role: str = "", policy: str = "", scope: str = "") -> dict[int, float]:
    for one in site.store.curves("r"):
        if (one.series.metric, one.series.role, one.series.policy, one.series.scope) == ("grad_norm", role, policy, scope):
            return dict(zip(one.steps, one.values, strict=True))
    return {}


def train(model: nn.Module, run: gradwatch.Run, factors: list[float], **options: object) -> list[StepRecord]:
    records: list[StepRecord] = []
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, run=run, optimizer=optimizer, on_record=records.append, **options):  # type: ignore[arg-type]
        for factor in factors:
            optimizer.zero_grad()
            (model(torch.ones(2, 4)).square().mean() * factor).backward()
            optimizer.step()
    run.finish()
    return records


def test_norms_under_amp_are_those_of_unscaled_gradients_and_the_scale_is_its_own_metric(site: Site, run: gradwatch.Run) -> None:
    """wandb#9092: gradients were logged as the loss scale had made them."""
    (plain,) = train(net(), gradwatch.init(id="plain", mode="disabled"), [1.0])
    model, scaler = net(), torch.amp.GradScaler("cpu", init_scale=65536.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, run=run, optimizer=optimizer, scaler=scaler):
        scaler.scale(model(torch.ones(2, 4)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    run.finish()
    assert norms(site)[0] == pytest.approx(plain.grad_norm, rel=1e-5)
    assert site.curve("r", "loss_scale") == {0: 65536.0}


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_an_infinite_gradient_is_logged_as_it_is_and_the_step_goes_on(site: Site, run: gradwatch.Run, bad: float) -> None:
    """wandb#800: an infinite gradient broke the histogram, inside the user's own pass."""
    train(net(), run, [1.0, bad])
    first, second = norms(site).values()
    assert math.isfinite(first)
    assert not math.isfinite(second)


def test_a_model_of_many_layers_makes_a_bounded_record(site: Site, run: gradwatch.Run) -> None:
    """wandb#3701: watching everything made summaries of 10 MB."""
    train(net(300), run, [1.0], max_groups=16)
    values = sum(len(one.steps) for one in site.store.curves("r"))
    assert values <= 2 * (16 + 1) + 2


def test_parameters_are_chosen_by_name_and_grouped_by_depth(site: Site, run: gradwatch.Run) -> None:
    """wandb#6945: which parameters are watched could not be chosen."""
    model = nn.ModuleDict({"body": net(3), "head": net(1), "frozen": net(1)})
    model.forward = lambda x: model["head"](model["body"](x)) + model["frozen"](x)  # type: ignore[method-assign]
    train(model, run, [1.0], include=["body.*", "head.*"], exclude=["*.bias"], depth=1)
    assert {one.series.scope for one in site.store.curves("r") if one.series.metric == "grad_norm"} == {"", "body", "head"}


def test_a_norm_that_is_kept_in_partitions_is_unavailable_and_never_0(site: Site, run: gradwatch.Run) -> None:
    """DeepSpeed#4555: with ZeRO a parameter's gradient is a part of the truth, or absent."""
    model = net()
    for one in model.parameters():
        one._hp_mapping = None  # type: ignore[attr-defined]
    (record,) = train(model, run, [1.0])
    assert record.grad_norm is None
    assert "get_global_grad_norm" in record.why
    assert norms(site) == {}


def test_the_step_that_first_had_a_nan_names_its_module(site: Site, run: gradwatch.Run) -> None:
    """verl#2505, #721, #747: the norm was NaN while the loss was normal, and nothing said where it came from."""
    model = net(3)
    model[1].register_forward_hook(lambda _module, _inputs, out: out * (math.nan if model.step == 1 else 1.0))
    records: list[StepRecord] = []
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, run=run, optimizer=optimizer, on_record=records.append):
        for step in range(2):
            model.step = step  # type: ignore[assignment]
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    run.finish()
    (event,) = [one for one in site.store.events("r") if one.kind == "nonfinite"]
    assert event.step == 1
    assert "'1' is the first module whose output is not finite" in event.message


def test_a_critic_that_is_nan_leaves_the_actor_unblamed(site: Site, run: gradwatch.Run) -> None:
    """verl#870, #498: only the critic was NaN."""
    actor, critic = net(), net()
    for model, policy, factor in ((actor, "actor", 1.0), (critic, "critic", math.nan)):
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        with watch(model, run=run, optimizer=optimizer, policy=policy):
            (model(torch.ones(2, 4)).square().mean() * factor).backward()
            optimizer.step()
    run.finish()
    assert math.isfinite(norms(site, policy="actor")[0])
    assert math.isnan(norms(site, policy="critic")[0])


def test_a_role_that_is_not_called_in_a_step_has_no_norm_there(site: Site, run: gradwatch.Run) -> None:
    """An uncalled agent's keys vanish for a step: absent is not 0."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, run=run, optimizer=optimizer, roles=["solver", "verifier"], max_overhead=None) as watcher:
        for step in range(3):
            optimizer.zero_grad()
            for role in ("solver", "verifier")[: 1 if step == 1 else 2]:
                with watcher.role(role):
                    model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    run.finish()
    assert list(norms(site, "solver")) == [0, 1, 2]
    assert list(norms(site, "verifier")) == [0, 2]


def test_what_cannot_be_measured_is_a_reason_and_no_number(run: gradwatch.Run) -> None:
    """A weight that its module's forward does not use goes unseen by hooks: the roles would not add up to the gradient."""
    model = net()
    records: list[StepRecord] = []
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with watch(model, run=run, optimizer=optimizer, engine="exact", on_record=records.append) as watcher:
        with watcher.roles([0, 1], ["a", "b"]):
            x = nn.functional.linear(torch.ones(2, 4), model[0].weight * 3)
            (model(torch.ones(2, 4)).square().mean() + x.square().mean()).backward()
        optimizer.step()
    assert isinstance(records[0].roles, Unavailable)
    assert "a weight is used outside of its module's forward" in records[0].roles.reason
