"""The hook contract on the Hugging Face Trainer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import HookContract
from contracts.hook_job import ROLES, Job, first_norm, loss_of
from torch import Tensor, nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

from gradwatch_hooks.transformers import watch_trainer

ROWS = 4

# Trainer itself warns so of a data loader on a machine without an accelerator.
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")


class Rows(Dataset[dict[str, Tensor]]):
    """The rows of all micro-batches of all ranks, from the first on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.micros = job.micro_batches.stop

    def __len__(self) -> int:
        return self.micros * ROWS * self.job.ranks

    def __getitem__(self, at: int) -> dict[str, Tensor]:
        number, row = divmod(at, ROWS)
        micro, rank = divmod(number, self.job.ranks)
        given = {"x": Job(None, rank=rank, ranks=self.job.ranks).batch(micro)[row]}
        return given | ({"role_ids": torch.tensor(ROLES.index(self.job.role(micro)))} if self.job.has_roles else {})


class InOrder(Trainer):
    """Takes the rows as they lie. `weigh` gets each loss before it is divided by the accumulation."""

    weigh: Any = staticmethod(lambda loss: loss)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(self.train_dataset)

    def compute_loss(self, model: nn.Module, inputs: Mapping[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        return self.weigh(loss_of(model(inputs["x"])))


class HuggingFace:
    def train(self, job: Job) -> Mapping[str, Tensor]:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = self.earlier(job, folder) if job.first_step else None
            trainer = self.trainer(job, folder)
            trainer.weigh = job.weigh
            job.keep(trainer=trainer, net=trainer.model, optimizer=trainer.optimizer)
            if not job.is_watched:
                trainer.train()
                return trainer.model.state_dict()
            with watch_trainer(trainer, run=job.run, roles=ROLES if job.has_roles else (), max_overhead=None):
                trainer.train(resume_from_checkpoint=checkpoint)
            return trainer.model.state_dict()

    def earlier(self, job: Job, folder: str) -> str:
        """A checkpoint at the job's first step."""
        self.trainer(Job(None, steps=job.first_step), folder, save_strategy="steps", save_steps=job.first_step).train()
        return str(Path(folder) / f"checkpoint-{job.first_step}")

    def trainer(self, job: Job, folder: str, **more: Any) -> InOrder:
        net = job.net()
        asked = {
            "output_dir": folder,
            "use_cpu": True,
            "max_steps": job.first_step + job.steps,
            "per_device_train_batch_size": ROWS,
            "gradient_accumulation_steps": job.accumulation,
            "max_grad_norm": job.clip or 0.0,
            "lr_scheduler_type": "constant",
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
        }
        arguments = TrainingArguments(**(asked | {"remove_unused_columns": False} | more))
        optimizer = torch.optim.SGD(net.parameters(), job.learning_rate)
        return InOrder(net, arguments, train_dataset=Rows(job), optimizers=(optimizer, None))


class TestHuggingFace(HookContract):
    adapter: ClassVar = HuggingFace()
    first: ClassVar[int] = 1

    def test_two_ranks_write_one_run_with_the_norm_of_the_whole_gradient(self, site: Site, tmp_path: Path) -> None:
        """Before clipping, which takes nearly all of it away."""
        self.adapter = Clipped()
        super().test_two_ranks_write_one_run_with_the_norm_of_the_whole_gradient(site, tmp_path)


class Clipped(HuggingFace):
    factor: ClassVar[float] = 1000.0

    def train(self, job: Job) -> Mapping[str, Tensor]:
        job.loss_factor, job.clip = self.factor, 1.0
        return super().train(job)

    def first_norm(self, job: Job, role: str = "") -> float:
        return self.factor * first_norm(job, role)
