"""A job as verl starts one: the trainer in a process of its own, with `Tracking`, and a group of workers."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch.distributed as dist
from hooks.verl_real.training import LENGTHS, batch, loss_of_rows, worker_config  # noqa: TID251 - the folder of these tests
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils import tensordict_utils as tu
from verl.utils.tracking import Tracking
from verl.workers.engine_workers import TrainingWorker


class GlooWorker(TrainingWorker):
    """verl's worker, which would name the CPU twice in its process group: once as itself and once as the accelerator."""

    def __init__(self, config: Any) -> None:
        dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        super().__init__(config)


@ray.remote
class TaskRunner:
    """The trainer's process."""

    def run(self, model: str, steps: int) -> list[float]:
        """Train so many updates of one optimizer step each; returns the norms that verl returned."""
        tracking = Tracking("math", "two roles", default_backend=["console", "gradwatch"], config={"n": 8})
        workers = RayWorkerGroup(
            RayResourcePool([2], use_gpu=False, max_colocate_count=1),
            RayClassWithInitArgs(ray.remote(GlooWorker), config=worker_config(model, 2, lr=0.1)),
        )
        workers.reset()
        workers.set_loss_fn(loss_of_rows)
        norms = []
        for step in range(1, steps + 1):
            data = tu.concat_tensordict([batch(0), batch(1)])
            tu.assign_non_tensor(data, mini_batch_size=2 * len(LENGTHS), dataloader_kwargs={"shuffle": True}, global_steps=step)
            metrics = tu.get(workers.train_mini_batch(data).get(), "metrics")
            norms += metrics["grad_norm"]
            tracking.log({"actor/grad_norm": metrics["grad_norm"][0]}, step)
        tracking.finish()
        return norms
