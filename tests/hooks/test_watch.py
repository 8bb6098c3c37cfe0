"""Watching a plain PyTorch loop: one record an attempted step, whatever the loop does, and nothing left behind."""

from __future__ import annotations

import copy
import gc
import math
import weakref

import pytest
import torch
from torch import nn

from gradwatch.errors import SettingsError
from gradwatch_hooks.torch import watch


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(number: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(number))


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), 0.1)


def norm_of(model: nn.Module) -> float:
    return math.sqrt(sum(float(one.grad.double().square().sum()) for one in model.parameters() if one.grad is not None))


def hooks_of(model: nn.Module) -> list[object]:
    """Everything on a model that a hook could have left."""
    modules = [
        {key: copy.copy(value) for key, value in vars(one).items() if "hook" in key} | dict.fromkeys(vars(one))
        for one in model.modules()
    ]
    parameters = [(one._backward_hooks, one._post_accumulate_grad_hooks) for one in model.parameters()]
    return [modules, [tuple(hooks or None for hooks in pair) for pair in parameters]]


def test_each_record_has_the_norm_before_clipping():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        truth = []
        for number in range(4):
            optimizer.zero_grad()
            (1000 * model(batch(number)).square().mean()).backward()
            truth.append(norm_of(model))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert [one.step for one in records] == [0, 1, 2, 3]
    assert [one.grad_norm for one in records] == pytest.approx(truth, rel=1e-6)
    assert set(records[0].groups) == {"0", "2"}
    assert not any(one.skipped for one in records)


def test_accumulated_backwards_make_one_record_of_their_sum():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        for number in range(6):
            (model(batch(number)).square().mean() / 3).backward()
            if number % 3 == 2:
                truth = norm_of(model)
                optimizer.step()
                optimizer.zero_grad()
    assert len(records) == 2
    assert records[1].grad_norm == pytest.approx(truth, rel=1e-6)


def test_under_a_loss_scale_norms_are_unscaled_and_a_skipped_step_is_a_record():
    model, records = small(), []
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    twin = small()
    with watch(model, optimizer=optimizer, scaler=scaler, on_record=records.append):
        for number in range(3):
            optimizer.zero_grad()
            factor = math.inf if number == 1 else 1.0
            scaler.scale(model(batch(number)).square().mean() * factor).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            scaler.step(optimizer)
            scaler.update()
    twin(batch(0)).square().mean().backward()
    assert [one.skipped for one in records] == [False, True, False]
    assert [one.loss_scale for one in records] == [1024.0, 1024.0, 512.0]
    assert records[0].grad_norm == pytest.approx(norm_of(twin), rel=1e-5)
    assert not math.isfinite(records[1].grad_norm)
    assert "step" not in vars(scaler)


def test_several_optimizers_of_one_model_make_one_record_a_step():
    model, records = small(), []
    first, second = (torch.optim.SGD(part.parameters(), 0.1) for part in (model[0], model[2]))
    with watch(model, optimizer=[first, second], on_record=records.append):
        for number in range(3):
            model.zero_grad()
            model(batch(number)).square().mean().backward()
            first.step()
            second.step()
    assert [one.step for one in records] == [0, 1, 2]


def test_without_an_optimizer_the_loop_says_when_a_step_is_attempted():
    model, records = small(), []
    watcher = watch(model, on_record=records.append, first_step=10)
    for number in range(2):
        model.zero_grad()
        model(batch(number)).square().mean().backward()
        watcher.emit(skipped=number == 1)
    watcher.detach()
    assert [(one.step, one.skipped) for one in records] == [(10, False), (11, True)]


def test_the_loop_may_set_the_step():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append) as watcher:
        for step in (5, 6, 3):
            watcher.step = step
            model(batch(step)).square().mean().backward()
            optimizer.step()
    assert [one.step for one in records] == [5, 6, 3]


def test_a_step_without_any_gradient_has_a_record_that_says_so():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        optimizer.step()
    assert records[0].grad_norm is None
    assert "no parameter" in records[0].why


def test_gradients_that_were_set_by_hand_are_read_at_the_step():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        for one, gradient in zip(
            model.parameters(), torch.autograd.grad(model(batch(0)).square().mean(), list(model.parameters())), strict=True
        ):
            one.grad = gradient
        truth = norm_of(model)
        optimizer.step()
    assert records[0].grad_norm == pytest.approx(truth, rel=1e-6)


def test_only_chosen_parameters_are_measured():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, include=["2.*"], on_record=records.append):
        model(batch(0)).square().mean().backward()
        truth = norm_of(model[2])
        optimizer.step()
    assert records[0].grad_norm == pytest.approx(truth, rel=1e-6)


def test_training_is_bit_equal_and_detaching_leaves_nothing_behind():
    watched, plain = small(), small()
    before = hooks_of(watched)
    for model in (watched, plain):
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        state = dict(vars(optimizer))
        watcher = watch(model, optimizer=optimizer, roles=["a", "b"], on_record=lambda _: None) if model is watched else None
        for number in range(50):
            optimizer.zero_grad()
            if watcher is not None:
                with watcher.roles([0, 1, number % 2, 1]):
                    model(batch(number)).square().mean().backward()
            else:
                model(batch(number)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        if watcher is not None:
            watcher.detach()
            assert watcher.failures == 0
        assert not optimizer._optimizer_step_pre_hooks
        assert vars(optimizer).keys() == state.keys()
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one.grad, other.grad)
    assert hooks_of(watched) == before


def test_a_model_that_is_gone_takes_its_watcher_with_it():
    model = small()
    watcher = watch(model, on_record=lambda _: None)
    gone = weakref.ref(watcher)
    del model, watcher
    gc.collect()
    assert gone() is None


class Frozen(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.requires_grad_(False)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda model: watch(Frozen(), on_record=print), "none of the 2 parameters to measure requires a gradient"),
        (
            lambda model: watch(model, optimizer=sgd(small()), on_record=print),
            "the optimizer steps none of this model's parameters",
        ),
        (lambda model: watch(model, optimizer=object(), on_record=print), "a object is no torch optimizer"),
        (lambda model: watch(model, engine="fast", on_record=print), "engine='fast': choose among auto, micro, lora"),
        (lambda model: watch(model, max_overhead=3, on_record=print), "max_overhead=3: must be a share between 0 and 1"),
        (lambda model: watch(model, include=["head.*"], on_record=print), "include"),
        (lambda model: watch(model, roles=["a", "a"], on_record=print), "names hold 'a' more than once"),
        (lambda model: watch(model, roles=[3], on_record=print), "role 3: give a role's name"),
    ],
)
def test_what_cannot_be_watched_is_refused_at_the_start(wrong, says):
    model = small()
    before = hooks_of(model)
    with pytest.raises(SettingsError, match=says):
        wrong(model)
    assert hooks_of(model) == before
    watch(model, on_record=print).detach()


def test_a_model_is_watched_once():
    model = small()
    watcher = watch(model, on_record=print)
    with pytest.raises(SettingsError, match=r"'0\.0\.weight' is watched already"):
        watch(nn.Sequential(model), on_record=print)
    watcher.detach()
    watch(model, on_record=print).detach()


def test_without_a_run_there_is_nothing_to_log_to():
    with pytest.raises(SettingsError, match=r"call gradwatch\.init"):
        watch(small())


def test_what_fails_in_a_step_is_counted_and_never_raised(live, caplog):
    model, optimizer = small(), None
    optimizer = sgd(model)

    def broken(_: object) -> None:
        raise RuntimeError("a broken page")

    live()
    with watch(model, optimizer=optimizer, on_record=broken) as watcher:
        for number in range(3):
            model(batch(number)).square().mean().backward()
            optimizer.step()
    assert watcher.failures == 3
    assert sum("was skipped (shown once)" in one.message for one in caplog.records) == 1


def test_the_place_of_a_nan_is_in_the_record():
    model, records = small(), []
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        for number in range(2):
            optimizer.zero_grad()
            x = batch(number)
            x[0, 0] = math.nan if number else 0.0
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert records[0].nonfinite == ""
    assert "'0' is the first module whose output is not finite" in records[1].nonfinite
    assert math.isnan(records[1].grad_norm)


def test_a_model_wrapped_after_watch_is_watched_as_it_is_now():
    model, records = small(), []
    watcher = watch(model, on_record=records.append)
    model[2] = nn.Linear(8, 3)
    for number in range(2):
        model.zero_grad()
        model(batch(number)).square().mean().backward()
        truth = norm_of(model)
        watcher.emit()
        assert records[-1].grad_norm == pytest.approx(truth, rel=1e-6)
    watcher.detach()


def test_the_update_to_weight_ratio_is_logged_with_the_step_that_made_it(site):
    import gradwatch

    model = small()
    optimizer = sgd(model)
    with gradwatch.init(id="ratio", url=site.url, quiet=True) as run, watch(model, run=run, optimizer=optimizer, first_step=3):
        weights = torch.cat([one.detach().reshape(-1).clone() for one in model.parameters()])
        model(batch(0)).square().mean().backward()
        moved = 0.1 * norm_of(model)
        optimizer.step()
    found = {one.series.scope: (one.steps, one.values) for one in site.store.curves("ratio") if "ratio" in one.series.metric}
    steps, values = found[""]
    assert (list(steps), set(found)) == ([3], {"", "0", "2"})
    assert values[0] == pytest.approx(moved / weights.norm().item(), rel=1e-4)


def test_a_scaler_that_steps_another_model_too_skips_no_step_of_this_one():
    model, critic, records = small(), small(1), []
    optimizer, others, scaler = sgd(model), sgd(critic), torch.amp.GradScaler("cpu", init_scale=8.0)
    with watch(model, optimizer=optimizer, scaler=scaler, on_record=records.append):
        for number in range(2):
            optimizer.zero_grad()
            for one in (model, critic):
                scaler.scale(one(batch(number)).square().mean()).backward()
            scaler.step(others)
            scaler.step(optimizer)
            scaler.update()
    assert [(one.step, one.skipped) for one in records] == [(0, False), (1, False)]


@pytest.mark.parametrize("kind", ["SGD", "LBFGS"])
def test_a_step_with_a_closure_is_recorded_with_the_gradient_it_begins_from(kind):
    model, records, truth = small(), [], []
    optimizer = getattr(torch.optim, kind)(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a"], max_overhead=None, on_record=records.append) as watcher:
        for number in range(3):
            evaluations = []

            def closure(number=number, evaluations=evaluations):
                optimizer.zero_grad()
                with watcher.role("a"):
                    loss = model(batch(number)).square().mean()
                    loss.backward()
                evaluations.append(norm_of(model))
                return loss

            optimizer.step(closure)
            truth.append(evaluations[0])
    assert [one.grad_norm for one in records] == pytest.approx(truth, rel=1e-6)
    assert [one.roles.norm("a") for one in records] == pytest.approx(truth, rel=0.01)


def test_parameters_that_begin_to_train_are_never_measured_after_clipping():
    model, records, truth = small(), [], []
    model[0].requires_grad_(False)
    optimizer = sgd(model)
    with watch(model, optimizer=optimizer, on_record=records.append):
        for number in range(3):
            optimizer.zero_grad()
            model[0].requires_grad_(number > 0)
            model[2].requires_grad_(number == 0)
            (1000 * model(batch(number)).square().mean()).backward()
            truth.append(norm_of(model))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert records[1].grad_norm is None
    assert "began to train" in records[1].why
    assert records[2].grad_norm == pytest.approx(truth[2], rel=1e-6)


def test_a_record_may_end_the_watching_in_the_middle_of_a_step():
    model = small()
    optimizer = sgd(model)
    watcher = watch(model, optimizer=optimizer, on_record=lambda _: watcher.detach())
    optimizer.register_step_pre_hook(lambda *_: None)
    before = model[0].weight.detach().clone()
    model(batch(0)).square().mean().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)


def test_an_empty_output_does_not_end_the_search_for_nan():
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle, self.busy = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x):
            return self.busy(x).sum() + self.idle(x[:0]).sum()

    model, records = Routed(), []
    with watch(model, on_record=records.append) as watcher:
        for number in range(2):
            x = batch(number)
            x[0, 0] = math.nan if number else 0.0
            model(x).backward()
            watcher.emit()
    assert "'busy'" in records[1].nonfinite
