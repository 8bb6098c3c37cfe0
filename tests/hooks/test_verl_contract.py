"""The hook contract on a verl worker's engine; verl itself is tested in `verl_real`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import HookContract, curve
from contracts.hook_job import ROLES, Job, loss_of
from hooks.verl_stub import Engine, jagged  # noqa: TID251 - the folder of these tests
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import gradwatch
from gradwatch_hooks.verl.worker import watch_worker


class VerlEngine:
    def train(self, job: Job) -> Mapping[str, Tensor]:
        net = job.net()
        module = DistributedDataParallel(net) if job.ranks > 1 else net
        optimizer = torch.optim.SGD(net.parameters(), job.learning_rate)
        engine = Engine(module, optimizer, math.inf if job.clip is None else job.clip)
        job.keep(net=net, optimizer=optimizer, engine=engine)
        roles = ROLES if job.has_roles else ()
        watching: Any = watch_worker(engine, job.run, roles, first_step=job.first_step) if job.is_watched else nullcontext()
        with watching:
            self.loop(job, engine)
        return net.state_dict()

    def loop(self, job: Job, engine: Engine) -> None:
        micros = list(job.micro_batches)
        for at in range(0, len(micros), job.accumulation):
            engine.train_batch(
                [self.micro_batch(job, micro) for micro in micros[at : at + job.accumulation]],
                lambda model_output, data: job.weigh(loss_of(model_output)) / job.accumulation,
            )

    def micro_batch(self, job: Job, micro: int) -> dict[str, Any]:
        rows = job.batch(micro)
        roles = {"role_ids": torch.full((len(rows),), ROLES.index(job.role(micro)))} if job.has_roles else {}
        return {"input_ids": jagged(list(rows)), "loss_mask": torch.ones(rows.shape, dtype=torch.int64), **roles}


class TestVerlEngine(HookContract):
    adapter: ClassVar = VerlEngine()

    def test_a_nan_step_is_logged_as_nan_and_the_next_one_too(self, site: Site, open_run: Callable[[], gradwatch.Run]) -> None:
        """verl leaves such a step out: it is logged, as skipped, and the next one is sound."""
        run, weights = self.trained(open_run, nan_at=1)
        assert [math.isnan(norm) for norm in curve(site, run).values()] == [False, True, False]
        assert site.curve(run, "step_skipped") == {0: 0.0, 1: 1.0, 2: 0.0}
        assert all(bool(torch.isfinite(one).all()) for one in weights.values())

    @pytest.mark.parametrize("ends", ["well", "badly"])
    def test_what_verl_returns_is_what_it_was(self, ends: str) -> None:
        job = Job(None, steps=1, nan_at=None if ends == "well" else 0)
        norms = []
        for run in (None, gradwatch.init(mode="disabled", quiet=True)):
            net = job.net()
            engine = Engine(net, torch.optim.SGD(net.parameters(), 0.1))
            with watch_worker(engine, run) if run is not None else nullcontext():
                norms.append(
                    engine.train_batch([VerlEngine().micro_batch(job, 0)], lambda model_output, data: loss_of(model_output))
                )
        assert norms[0] == norms[1]
