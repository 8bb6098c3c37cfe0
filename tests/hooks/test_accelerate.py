"""The hook for accelerate: the contract, and what is accelerate's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, register_tracker_class
from cases.site import Site
from contracts.hook_contract import HookContract, curve, status
from contracts.hook_job import Job, first_norm, loss_of
from torch import Tensor

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch.schema import FINISHED, Selection
from gradwatch_hooks.accelerate import GradwatchTracker, watch


def forget() -> None:
    """accelerate holds its state in classes; each training begins with none."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture(autouse=True)
def no_state() -> Iterator[None]:
    forget()
    yield
    forget()


class Accelerate:
    def train(self, job: Job) -> Mapping[str, Tensor]:
        forget()
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=job.accumulation)
        net = job.net()
        model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), job.learning_rate))
        job.keep(net=net, model=model, optimizer=optimizer, inner=optimizer.optimizer, accelerator=accelerator)
        if not job.is_watched:
            self.loop(job, accelerator, model, optimizer, nullcontext)
            return net.state_dict()
        options = {"first_step": job.first_step, "max_overhead": None, "roles": ["solver", "verifier"] if job.has_roles else []}
        with watch(accelerator, model, optimizer, run=job.run, **options) as watcher:
            self.loop(job, accelerator, model, optimizer, watcher.role)
        return net.state_dict()

    def loop(self, job: Job, accelerator: Accelerator, model: Any, optimizer: Any, role: Any) -> None:
        for micro in job.micro_batches:
            with accelerator.accumulate(model), role(job.role(micro)) if job.has_roles else nullcontext():
                accelerator.backward(job.weigh(loss_of(model(job.batch(micro)))))
            if accelerator.sync_gradients and job.clip is not None:
                accelerator.clip_grad_norm_(model.parameters(), job.clip)
            optimizer.step()
            optimizer.zero_grad()


class TestAccelerate(HookContract):
    adapter: ClassVar = Accelerate()


def values(site: Site, run: gradwatch.Run, metric: str) -> dict[int, float]:
    assert run.flush(30)
    found = site.store.curves(run.id, Selection(metrics=(metric,)))
    return {step: value for one in found for step, value in zip(one.steps, one.values, strict=True)}


def test_a_tracker_logs_with_the_axes_it_is_given_and_ends_its_own_run(site: Site) -> None:
    tracker = GradwatchTracker("maze", url=site.url, quiet=True)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("maze", config={"width": 6})
    accelerator.log({"loss": 1.5}, step=3)
    accelerator.log({"accuracy": 0.5}, step=3, log_kwargs={"gradwatch": {"stream": "eval", "role": "solver"}})
    run = accelerator.get_tracker("gradwatch", unwrap=True)
    assert values(site, run, "loss") == {3: 1.5}
    (found,) = site.store.curves(run.id, Selection(metrics=("accuracy",)))
    assert (found.series.stream, found.series.role) == ("eval", "solver")
    accelerator.end_training()
    state = site.collector.state(run.id)
    assert (state.status, state.info.project, state.info.config) == (FINISHED, "maze", {"width": 6})


def test_a_run_of_the_users_is_theirs_to_end(site: Site) -> None:
    with gradwatch.init(url=site.url, quiet=True) as run:
        accelerator = Accelerator(cpu=True, log_with=GradwatchTracker(run=run))
        accelerator.init_trackers("maze", config={"width": 6})
        accelerator.log({"loss": 1.5}, step=0)
        accelerator.end_training()
        assert not run.is_over
    assert [one.facts for one in site.store.events(run.id) if one.kind == "config"] == [{"width": 6}]
    assert status(site, run.id) == FINISHED


@pytest.fixture
def registered() -> Iterator[None]:
    register_tracker_class(GradwatchTracker)
    yield
    LOGGER_TYPE_TO_CLASS.pop("gradwatch")


def test_a_registered_tracker_is_chosen_by_its_name(site: Site, registered: None) -> None:
    accelerator = Accelerator(cpu=True, log_with="gradwatch")
    accelerator.init_trackers("maze", init_kwargs={"gradwatch": {"url": site.url, "quiet": True}})
    accelerator.log({"loss": 2.5}, step=0)
    run = accelerator.get_tracker("gradwatch", unwrap=True)
    assert values(site, run, "loss") == {0: 2.5}
    accelerator.end_training()


def test_gradients_go_to_the_trackers_run(site: Site) -> None:
    accelerator = Accelerator(cpu=True, log_with=GradwatchTracker("maze", url=site.url, quiet=True))
    accelerator.init_trackers("maze")
    job = Job(None)
    net = job.net()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
    with watch(accelerator, model, optimizer):
        accelerator.backward(loss_of(model(job.batch(0))))
        optimizer.step()
    run = accelerator.get_tracker("gradwatch", unwrap=True)
    assert run.flush(30)
    assert curve(site, run.id) == {0: pytest.approx(first_norm(job), rel=1e-5)}
    accelerator.end_training()


def test_under_amp_norms_are_unscaled_and_a_skipped_step_is_flagged(site: Site) -> None:
    job = Job(None)
    with gradwatch.init(url=site.url, quiet=True) as run:
        accelerator = Accelerator(cpu=True)
        net = job.net()
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
        with watch(accelerator, model, optimizer, run=run):
            for step in range(3):
                loss = loss_of(model(job.batch(step))) * (float("inf") if step == 1 else 1.0)
                accelerator.scaler.scale(loss).backward()
                accelerator.scaler.unscale_(optimizer.optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
                optimizer.step()
                assert accelerator.optimizer_step_was_skipped == (step == 1)
                optimizer.zero_grad()
        assert "step" not in vars(accelerator.scaler)
    assert values(site, run, "step_skipped") == {0: 0.0, 1: 1.0, 2: 0.0}
    assert values(site, run, "loss_scale") == {0: 1024.0, 1: 1024.0, 2: 512.0}
    assert curve(site, run.id)[0] == pytest.approx(first_norm(job), rel=1e-5)


def test_what_was_not_prepared_is_refused(site: Site) -> None:
    net = Job(None).net()
    with gradwatch.init(url=site.url, quiet=True) as run, pytest.raises(SettingsError, match="SGD is not prepared"):
        watch(Accelerator(cpu=True), net, torch.optim.SGD(net.parameters(), 0.1), run=run)
