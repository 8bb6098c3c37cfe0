"""What every hook into a training loop must do; a test module subclasses `HookContract` and names its adapter."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from cases.site import Site
from contracts.hook_job import BrokenTrainingError, Job, first_norm
from torch import Tensor

import gradwatch
from gradwatch.schema import FAILED, FINISHED, INTERRUPTED, NO_RANK, Curve, Selection

RANKS = 2


class Adapter(Protocol):
    """How a framework trains what a `Job` says. Instances are pickled: define the class at the top of a module.

    `train(job)` builds `job.net()` and an SGD optimizer with `job.learning_rate`, attaches the hook to `job.run` if
    `job.is_watched`, and trains `job.steps` optimizer steps in the framework's usual way: for each number in `job.micro_batches`
    the loss is `job.weigh(loss_of(model(job.batch(number))))`, which the framework divides by `job.accumulation`; where
    `job.has_roles`, that is within the hook's role `job.role(number)`, measured at every step (`max_overhead=None`). Gradients are
    clipped to `job.clip`. `job.keep(name=object)` names what the hook may have touched. The hook is taken off at the end, also
    where the training raises; the run stays open (the contract finishes it). Gives the trained weights by name.

    With a model of its own an adapter also overrides `first_norm`, the true norm of the job's first step, of all of it or of one
    role (the default, `contracts.hook_job.first_norm`, knows `Net`). On rank `job.rank` of `job.ranks`, gloo is initialised before.
    """

    def train(self, job: Job) -> Mapping[str, Tensor]:
        """Train, and give the weights."""
        ...


class HookContract:
    """`first` is the step that the framework gives its first optimizer step. The flags say which claims a framework can meet."""

    adapter: ClassVar[Adapter]
    first: ClassVar[int] = 0
    interrupt: ClassVar[type[BaseException]] = KeyboardInterrupt
    accumulates: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    has_groups: ClassVar[bool] = True
    knows_roles: ClassVar[bool] = True
    runs_on_ranks: ClassVar[bool] = True
    may_answer_oddly: ClassVar[bool] = True
    names_nonfinite: ClassVar[bool] = True

    @pytest.fixture
    def open_run(self, site: Site) -> Callable[[], gradwatch.Run]:
        """Opens the test's run, or opens it again."""
        name = f"{type(self).__name__}-{secrets.token_hex(4)}"
        return lambda: gradwatch.init(id=name, url=site.url, quiet=True)

    def trained(self, open_run: Callable[[], gradwatch.Run], **asked: Any) -> tuple[str, Mapping[str, Tensor]]:
        """A whole training with a run of its own: the run's id, and the weights."""
        with open_run() as run:
            weights = self.adapter.train(Job(run, **asked))
        return run.id, weights

    def steps(self, steps: range) -> list[int]:
        """The framework's numbers of optimizer steps."""
        return [step + self.first for step in steps]

    def test_the_first_step_is_logged_with_its_true_norm(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        run, _ = self.trained(open_run)
        norms = curve(site, run)
        assert list(norms) == self.steps(range(3))
        assert norms[self.first] == pytest.approx(self.first_norm(Job(None)), rel=1e-5)

    def test_module_groups_add_up_to_the_whole_norm(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        self.needs(self.has_groups, "norms of module groups")
        run, _ = self.trained(open_run, steps=1)
        groups = [one.values[0] for one in grad_norms(site, run) if one.series.scope]
        assert len(groups) > 1
        assert math.hypot(*groups) == pytest.approx(curve(site, run)[self.first], rel=1e-5)

    def test_there_is_one_record_for_each_optimizer_step_whatever_the_accumulation(
        self, site: Site, open_run: Callable[[], gradwatch.Run]
    ) -> None:
        self.needs(self.accumulates, "accumulation")
        run, _ = self.trained(open_run, accumulation=3)
        norms = curve(site, run)
        assert list(norms) == self.steps(range(3))
        assert norms[self.first] == pytest.approx(self.first_norm(Job(None, accumulation=3)), rel=1e-5)
        assert len(points(site, run)) == 3

    def test_a_resumed_training_goes_on_counting_in_a_new_attempt(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        self.needs(self.resumes, "resume")
        self.trained(open_run)
        run, _ = self.trained(open_run, first_step=3, steps=2)
        assert list(curve(site, run, attempt=1)) == self.steps(range(3))
        assert list(curve(site, run, attempt=2)) == self.steps(range(3, 5))

    def test_norms_are_those_before_clipping(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        plain, _ = self.trained(open_run, steps=2)
        (norm, *_) = curve(site, plain).values()
        run, _ = self.trained(open_run, steps=2, loss_factor=1000.0, clip=1.0)
        assert curve(site, run, attempt=2)[self.first] == pytest.approx(1000 * norm, rel=1e-4)

    def test_an_exception_passes_unchanged_and_what_came_before_it_has_arrived(
        self, site: Site, open_run: Callable[[], gradwatch.Run]
    ) -> None:
        with pytest.raises(BrokenTrainingError, match=r"^step 2$"), open_run() as run:
            self.adapter.train(Job(run, steps=4, fail_at=2))
        assert list(curve(site, run.id)) == self.steps(range(2))
        assert status(site, run.id) == FAILED

    def test_an_interrupt_passes_and_ends_the_run_as_interrupted(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        with pytest.raises(self.interrupt), open_run() as run:
            self.adapter.train(Job(run, steps=4, interrupt_at=2))
        assert list(curve(site, run.id)) == self.steps(range(2))
        assert status(site, run.id) == INTERRUPTED

    def test_a_nan_step_is_logged_as_nan_and_the_next_one_too(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        run, _ = self.trained(open_run, nan_at=1)
        norms = curve(site, run)
        assert [math.isnan(norm) for norm in norms.values()] == [False, True, True]
        assert list(norms) == self.steps(range(3))

    def test_an_event_says_where_a_nan_came_from(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        self.needs(self.names_nonfinite, "places of NaN")
        run, _ = self.trained(open_run, nan_at=1, steps=2)
        named = [one for one in site.store.events(run) if one.kind == "nonfinite"]
        assert [one.step for one in named] == self.steps(range(1, 2))
        assert "head" in named[0].message

    def test_trained_weights_are_those_without_the_hook(self, open_run: Callable[[], gradwatch.Run]) -> None:
        _, watched = self.trained(open_run, clip=0.5)
        assert equal(watched, self.adapter.train(Job(None, clip=0.5, is_watched=False)))

    def test_role_norms_are_those_of_separate_backwards(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        self.needs(self.knows_roles and self.accumulates, "roles")
        job = Job(None, steps=2, accumulation=2, has_roles=True)
        run, watched = self.trained(open_run, steps=2, accumulation=2, has_roles=True)
        for role in ("solver", "verifier"):
            norms = curve(site, run, role=role)
            assert list(norms) == self.steps(range(2))
            assert norms[self.first] == pytest.approx(self.first_norm(job, role), rel=0.02)
        assert equal(watched, self.adapter.train(Job(None, steps=2, accumulation=2, has_roles=True, is_watched=False)))

    @pytest.mark.parametrize("wrong", ["log", "everything"])
    def test_a_broken_run_does_not_reach_the_training(
        self, wrong: str, open_run: Callable[[], gradwatch.Run], live: Callable[[], None]
    ) -> None:
        live()
        with open_run() as run:
            run.log = raising  # type: ignore[method-assign]
            broken = self.adapter.train(Job(run if wrong == "log" else Broken()))
        assert equal(broken, self.adapter.train(Job(None, is_watched=False)))

    def test_a_model_may_answer_with_anything(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        self.needs(self.may_answer_oddly, "models with outputs of any type")
        run, watched = self.trained(open_run, answers_oddly=True)
        assert list(curve(site, run)) == self.steps(range(3))
        assert equal(watched, self.adapter.train(Job(None, answers_oddly=True, is_watched=False)))

    @pytest.mark.parametrize("ends", ["well", "badly"])
    def test_nothing_stays_attached(self, ends: str, open_run: Callable[[], gradwatch.Run]) -> None:
        fail_at = None if ends == "well" else 1
        watched = Job(None, fail_at=fail_at, accumulation=2 if self.accumulates else 1, has_roles=self.knows_roles)
        plain = Job(None, fail_at=fail_at, accumulation=watched.accumulation, is_watched=False)
        with open_run() as watched.run:
            self.ended(watched)
        self.ended(plain)
        assert watched.kept
        assert watched.footprint() == plain.footprint()

    def ended(self, job: Job) -> None:
        """Train to the end, good or bad."""
        try:
            self.adapter.train(job)
        except BrokenTrainingError:
            assert job.fail_at is not None

    def test_two_ranks_write_one_run_with_the_norm_of_the_whole_gradient(self, site: Site, tmp_path: Path) -> None:
        self.needs(self.runs_on_ranks, "several processes")
        run = f"{type(self).__name__}-ranks"
        mp.spawn(work, (self.adapter, site.url, run, str(tmp_path)), nprocs=RANKS)
        truth = self.first_norm(Job(None, ranks=RANKS))
        found = [one for one in grad_norms(site, run) if not one.series.scope and not one.series.role]
        assert NO_RANK in {one.series.rank for one in found}
        for one in found:
            assert one.steps == self.steps(range(3))
            assert one.values[0] == pytest.approx(truth, rel=1e-4)
        assert [one.status for one in site.store.attempts(run)] == [FINISHED]

    def first_norm(self, job: Job, role: str = "") -> float:
        """The true norm of a job's first step."""
        own: Callable[[Job, str], float] = getattr(self.adapter, "first_norm", first_norm)
        return own(job, role)

    def needs(self, there: bool, what: str) -> None:
        """What a framework does not have is no gap in its tests: the claim holds of itself."""
        if not there:
            pytest.xfail(f"{type(self.adapter).__name__} has no {what}")


class Broken:
    """What passes for an open run, and can do nothing."""

    is_over = False

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"a broken run has no {name}")


def raising(*_: Any, **__: Any) -> None:
    raise RuntimeError("a run that cannot log")


def work(rank: int, adapter: Adapter, url: str, run: str, folder: str) -> None:
    """One of the processes, as a launcher would start it."""
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), GRADWATCH_DIR=f"{folder}/spool"
    )
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    with gradwatch.init(id=run, url=url, launch="job", quiet=True) as opened:
        adapter.train(Job(opened, rank=rank, ranks=RANKS))
    if dist.is_initialized():
        dist.destroy_process_group()


def grad_norms(site: Site, run: str, attempt: int | None = None) -> list[Curve]:
    return site.store.curves(run, Selection(metrics=("grad_norm",), attempt=attempt))


def curve(site: Site, run: str, *, attempt: int = 1, role: str = "", scope: str = "", policy: str = "") -> dict[int, float]:
    """The gradient norm of one scope and role by step."""
    wanted = (role, "", scope, policy)
    found = [
        one
        for one in grad_norms(site, run, attempt)
        if (one.series.role, one.series.agent, one.series.scope, one.series.policy) == wanted
    ]
    return {step: value for one in found for step, value in zip(one.steps, one.values, strict=True)}


def points(site: Site, run: str) -> list[float]:
    """Every norm of the whole gradient that was logged, rewrites included."""
    blocks = (block for _, block in site.store.replay(run))
    return [
        one.value
        for block in blocks
        for one in block
        if (one.series.metric, one.series.role, one.series.scope) == ("grad_norm", "", "")
    ]


def status(site: Site, run: str) -> str:
    """How the run's last attempt ended."""
    return site.store.attempts(run)[-1].status


def equal(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether weights are the same to the last bit."""
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
