"""The hook contract on TRL's GRPOTrainer, whose rollouts are made up so that every process knows those of all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import RANKS, HookContract, curve
from contracts.hook_job import ROLES, Job
from datasets import Dataset
from hooks.tiny import tiny_model, tiny_tokenizer  # noqa: TID251 - the folder of these tests
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from gradwatch_hooks.trl import watch_grpo

PROMPT, OUTPUT, GROUP = 3, 5, 2

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    # TRL turns checkpointing on by the name that transformers is about to retire.
    pytest.mark.filterwarnings("ignore:.*checkpointing.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*rollout_func.*"),
]


def prompt(index: int) -> list[int]:
    """The tokens of a prompt."""
    return torch.randint(2, 40, (PROMPT,), generator=torch.Generator().manual_seed(index)).tolist()


def outputs(tokens: list[int]) -> list[list[int]]:
    """The completions of a prompt: (GROUP, OUTPUT) tokens, of which the first is odd in one and even in the other."""
    made = torch.randint(2, 40, (GROUP, OUTPUT), generator=torch.Generator().manual_seed(1 + sum(tokens)))
    made[:, 0] = 2 * (made[:, 0] // 2) + torch.arange(GROUP)
    return made.tolist()


def roll_out(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """What TRL asks of a `rollout_func`; the prompts of a group follow each other."""
    tokens = [trainer.processing_class(one)["input_ids"] for one in prompts]
    return {
        "prompt_ids": tokens,
        "completion_ids": [outputs(one)[at % GROUP] for at, one in enumerate(tokens)],
        "logprobs": None,
    }


def is_odd(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [float(ids[0] % 2) for ids in completion_ids]


class Weighed(GRPOTrainer):
    """`weigh` gets each micro-batch's loss."""

    weigh: Any = staticmethod(lambda loss: loss)

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        return self.weigh(super()._compute_loss(model, inputs))


class Grpo:
    """A micro-batch is the group of one prompt, so it is one role's; the loss of a completion is the mean over its tokens."""

    def train(self, job: Job) -> Mapping[str, Tensor]:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = self.earlier(job, folder) if job.first_step else None
            trainer = self.trainer(job, folder)
            trainer.weigh = job.weigh
            job.keep(trainer=trainer, net=trainer.model, optimizer=trainer.optimizer)
            if not job.is_watched:
                trainer.train()
                return trainer.model.state_dict()
            with watch_grpo(trainer, run=job.run, max_overhead=None):
                trainer.train(resume_from_checkpoint=checkpoint)
            return trainer.model.state_dict()

    def earlier(self, job: Job, folder: str) -> str:
        """A checkpoint at the job's first step."""
        self.trainer(Job(None, steps=job.first_step), folder, save_strategy="steps", save_steps=job.first_step).train()
        return str(Path(folder) / f"checkpoint-{job.first_step}")

    def trainer(self, job: Job, folder: str, **more: Any) -> Weighed:
        asked = {
            "output_dir": folder,
            "use_cpu": True,
            "bf16": False,
            "max_steps": job.first_step + job.steps,
            "per_device_train_batch_size": GROUP,
            "num_generations": GROUP,
            "steps_per_generation": 1,
            "gradient_accumulation_steps": job.accumulation,
            "max_completion_length": OUTPUT,
            "loss_type": "grpo",
            "max_grad_norm": job.clip or 0.0,
            "learning_rate": job.learning_rate,
            "lr_scheduler_type": "constant",
            "shuffle_dataset": False,
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
        }
        tokenizer, model = tiny_tokenizer(), tiny_model()
        rows = [
            {"prompt": tokenizer.decode(prompt(at)), **({"role": job.role(at // job.ranks)} if job.has_roles else {})}
            for at in range(job.micro_batches.stop * job.ranks)
        ]
        return Weighed(
            model=model,
            reward_funcs=[is_odd],
            args=GRPOConfig(**(asked | more)),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            rollout_func=roll_out,
            optimizers=(torch.optim.SGD(model.parameters(), job.learning_rate), None),
        )

    def first_norm(self, job: Job, role: str = "") -> float:
        """By plain autograd in float64: of each group, -Σ A·log p over the mean of its tokens."""
        model = tiny_model().double()
        share = job.loss_factor / (job.accumulation * job.ranks)
        for micro in job.micro_batches[: job.accumulation]:
            for rank in range(job.ranks):
                if role in ("", job.role(micro)):
                    (self.group_loss(model, micro * job.ranks + rank) * share).backward()
        return float(torch.stack([one.grad.norm() for one in model.parameters()]).norm())

    def group_loss(self, model: Any, index: int) -> Tensor:
        tokens = prompt(index)
        made_GT = torch.tensor(outputs(tokens))
        rewards_G = (made_GT[:, 0] % 2).double()
        # TRL's own normalisation, which is in float32.
        advantages_G = (rewards_G - rewards_G.mean()) / (rewards_G.std() + 1e-4)
        whole_GT = torch.cat([torch.tensor([tokens] * GROUP), made_GT], 1)
        logits_GTV = model(input_ids=whole_GT).logits[:, PROMPT - 1 : -1]
        logprobs_GT = logits_GTV.log_softmax(-1).gather(-1, made_GT[..., None])[..., 0]
        return -(advantages_G[:, None] * logprobs_GT).mean(1).mean()


class TestGrpo(HookContract):
    adapter: ClassVar = Grpo()
    first: ClassVar[int] = 1
    may_answer_oddly: ClassVar[bool] = False

    def test_two_ranks_write_one_run_with_the_norm_of_the_whole_gradient(self, site: Site, tmp_path: Path) -> None:
        """And of each role; each rank logs its own rollouts."""
        self.adapter = WithRoles()
        super().test_two_ranks_write_one_run_with_the_norm_of_the_whole_gradient(site, tmp_path)
        run = "TestGrpo-ranks"
        whole = curve(site, run)
        assert {role: curve(site, run, role=role) for role in ROLES} == {
            "solver": pytest.approx({1: whole[1], 3: whole[3]}, rel=0.01),
            "verifier": pytest.approx({2: whole[2]}, rel=0.01),
        }
        rolled_out = [(one.step, one.prompt, one.role) for one in site.store.samples(run)]
        tokenizer = tiny_tokenizer()
        made = [(1 + at // RANKS, tokenizer.decode(prompt(at)), ROLES[at // RANKS % 2]) for at in range(3 * RANKS)]
        assert sorted(rolled_out) == sorted(made * GROUP)


class WithRoles(Grpo):
    def train(self, job: Job) -> Mapping[str, Tensor]:
        job.has_roles = True
        return super().train(job)
