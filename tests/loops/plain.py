"""A training loop of plain PyTorch that does what a `Job` of the hook contract says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from contracts.hook_job import Job, loss_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradwatch_hooks.torch import watch


class PlainTorch:
    """Copies of the model on each rank (DDP)."""

    def train(self, job: Job) -> Mapping[str, Tensor]:
        model = self.wrapped(job)
        optimizer = torch.optim.SGD(model.parameters(), job.learning_rate)
        job.keep(model=model, optimizer=optimizer)
        if not job.is_watched:
            self.loop(job, model, optimizer, nullcontext)
            return self.weights(model)
        roles = ["solver", "verifier"] if job.has_roles else []
        options: dict[str, Any] = {"first_step": job.first_step, "max_overhead": None, "roles": roles}
        with watch(model, run=job.run, optimizer=optimizer, **options) as watcher:
            self.loop(job, model, optimizer, watcher.role)
        return self.weights(model)

    def wrapped(self, job: Job) -> nn.Module:
        return DistributedDataParallel(job.net()) if job.ranks > 1 else job.net()

    def weights(self, model: nn.Module) -> Mapping[str, Tensor]:
        return model.state_dict()

    def clip(self, model: nn.Module, most: float) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), most)

    def loop(self, job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, role: Any) -> None:
        for micro in job.micro_batches:
            with role(job.role(micro)) if job.has_roles else nullcontext():
                (job.weigh(loss_of(model(job.batch(micro)))) / job.accumulation).backward()
            if (micro + 1) % job.accumulation == 0:
                if job.clip is not None:
                    self.clip(model, job.clip)
                optimizer.step()
                optimizer.zero_grad()
