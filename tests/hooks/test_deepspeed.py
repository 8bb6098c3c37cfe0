"""The hook for DeepSpeed, on its CPU accelerator: the contract, and what is DeepSpeed's own."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from cases.site import Site
from contracts.hook_contract import HookContract, curve
from contracts.hook_job import Job, first_norm, loss_of
from torch import Tensor

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch.schema import Selection
from gradwatch_hooks.deepspeed import NEEDED, watch_engine

pytestmark = [
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed"),
    # DeepSpeed uses what torch has deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def initialize(job: Job, **config: Any) -> Any:
    """An engine for a job."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(job.rank)}
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel("ERROR")
    # It would be compiled, and gloo does the same.
    deepspeed.ops.__compatible_ops__.pop("deepspeed_shm_comm", None)
    net = job.net()
    asked = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": job.accumulation,
        "gradient_clipping": job.clip or 0.0,
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(net.parameters(), job.learning_rate)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=asked | config, dist_init_required=False)
    return engine


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """DeepSpeed needs a process group, also for one process; what it leaves in this one is taken back."""
    linear, environment = torch.nn.functional.linear, dict(os.environ)
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    # ZeRO 3 puts its own in torch, for every module of the process.
    torch.nn.functional.linear = linear
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]


class DeepSpeed:
    """Resumes from a checkpoint that the earlier part of the same training wrote."""

    def __init__(self, stage: int) -> None:
        self.stage = stage

    def train(self, job: Job) -> Mapping[str, Tensor]:
        engine = initialize(job, zero_optimization={"stage": self.stage})
        if job.first_step:
            engine.load_checkpoint(Path("saved"))
        job.keep(engine=engine, net=engine.module, optimizer=engine.optimizer)
        try:
            if job.is_watched:
                with watch_engine(engine, run=job.run):
                    self.loop(job, engine)
            else:
                self.loop(job, engine)
            if job.ranks == 1:
                engine.save_checkpoint(Path("saved"))
            return {name: value.clone() for name, value in engine.module.state_dict().items()}
        finally:
            engine.destroy()

    def loop(self, job: Job, engine: Any) -> None:
        for micro in job.micro_batches:
            engine.backward(job.weigh(loss_of(engine(job.batch(micro)))))
            engine.step()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class TestWithoutZeRO(HookContract):
    adapter: ClassVar = DeepSpeed(0)
    first: ClassVar = 1
    knows_roles: ClassVar = False
    names_nonfinite: ClassVar = False


class TestZeRO2(TestWithoutZeRO):
    adapter: ClassVar = DeepSpeed(2)
    has_groups: ClassVar = False

    def test_a_nan_step_is_logged_as_nan_and_the_next_one_too(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        """ZeRO says Inf for NaN and for Inf, and leaves such a step out, so that the next one is sound."""
        run, _ = self.trained(open_run, nan_at=1)
        first, second, third = curve(site, run).values()
        assert (math.isfinite(first), second, math.isfinite(third)) == (True, math.inf, True)
        assert values(site, run, "step_skipped") == {1: 0.0, 2: 1.0, 3: 0.0}


def values(site: Site, run: str, metric: str) -> dict[int, float]:
    found = site.store.curves(run, Selection(metrics=(metric,)))
    return {step: value for one in found for step, value in zip(one.steps, one.values, strict=True)}


def stepped(site: Site, steps: int = 1, factor: float = 1.0, **config: Any) -> tuple[str, Any]:
    """A training of a few steps, its gradients clipped to next to nothing: the run, and the watcher."""
    with gradwatch.init(url=site.url, quiet=True) as run:
        job = Job(run, clip=1e-3, loss_factor=factor, steps=steps)
        engine = initialize(job, **config)
        with watch_engine(engine) as watcher:
            dtype = next(engine.module.parameters()).dtype
            for micro in job.micro_batches:
                engine.backward(job.weigh(loss_of(engine(job.batch(micro).to(dtype)).float())))
                engine.step()
        engine.destroy()
    return run.id, watcher


@pytest.mark.parametrize("precision", [{}, {"bf16": {"enabled": True}}, {"fp16": {"enabled": True, "initial_scale_power": 8}}])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_the_norm_is_the_true_one_at_every_stage_and_precision(site: Site, stage: int, precision: dict[str, Any]) -> None:
    run, _ = stepped(site, zero_optimization={"stage": stage}, **precision)
    assert curve(site, run) == {1: pytest.approx(first_norm(Job(None)), rel=0.01)}
    assert values(site, run, "loss_scale") == ({1: 256.0} if "fp16" in precision else {})


def test_an_overflow_is_a_skipped_step_with_the_scale_it_had(site: Site) -> None:
    fp16 = {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}
    run, _ = stepped(site, 2, 1e6, zero_optimization={"stage": 2}, fp16=fp16)
    assert curve(site, run) == {1: math.inf, 2: math.inf}
    assert values(site, run, "step_skipped") == {1: 1.0, 2: 1.0}
    assert values(site, run, "loss_scale") == {1: 256.0, 2: 128.0}


def test_a_norm_that_deepspeed_does_not_compute_is_absent_and_not_0(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "gradwatch")
    with gradwatch.init(url=site.url, quiet=True) as run:
        job = Job(run)
        engine = initialize(job, zero_optimization={"stage": 2, "compute_grad_norm": False})
        with watch_engine(engine) as watcher:
            DeepSpeed(2).loop(job, engine)
        engine.destroy()
    assert curve(site, run.id) == {}
    assert list(values(site, run.id, "step_skipped")) == [1, 2, 3]
    assert watcher.last.grad_norm is None
    assert sum("did not compute the norm" in one.message for one in caplog.records) == 1


def test_what_cannot_be_watched_is_refused(site: Site) -> None:
    with pytest.raises(SettingsError, match="give the engine that"):
        watch_engine(Job(None).net())
    pipeline = SimpleNamespace(**dict.fromkeys((*NEEDED, "train_batch")))
    with pytest.raises(SettingsError, match="train_batch"):
        watch_engine(pipeline)
    with gradwatch.init(url=site.url, quiet=True) as run:
        engine = initialize(Job(run))
        with watch_engine(engine), pytest.raises(SettingsError, match="watched already"):
            watch_engine(engine)
        engine.destroy()
