"""The rollouts that GRPO generates: scored, told apart by role, and each with a number that travels with it to the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradwatch.quantities.roles import Speaker
from gradwatch_hooks.hf.rollouts import FormatValid, Rollout, Scores, metrics_of, rollouts_of, shares_of
from gradwatch_hooks.hf.row_roles import RowRoles
from gradwatch_hooks.hf.watched import WatchedTrainer

ROLE_IDS, ROLLOUTS = "gradwatch_role_ids", "gradwatch_rollouts"
"""Fields of the batch: (B,) whole numbers each, on the CPU. The trainer shuffles and splits them with all others."""


class Generations:
    """Wraps where one GRPOTrainer scores completions and makes a batch of them, and logs what each role's came to."""

    def __init__(self, watched: WatchedTrainer, rows: RowRoles, format_valid: FormatValid | None) -> None:
        self._watched = watched
        self._trainer: Any = watched.trainer
        self._guard = watched.callback.guard
        self._rows = rows
        self._format_valid = format_valid
        self._scores: Scores | None = None
        self._rollouts: dict[int, Rollout] = {}
        self._made = self._count = 0
        watched.methods.wrap("_calculate_rewards", self._calculate_rewards)
        watched.methods.wrap("_generate_and_score_completions", self._generate_and_score)

    def take(self, number: int) -> Rollout | None:
        """The rollout of a number, once."""
        return self._rollouts.pop(number, None)

    def _calculate_rewards(self, calculate: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        rewards = calculate(*args, **kwargs)
        with self._guard.within("rewards of a generation"):
            given = inspect.signature(calculate).bind(*args, **kwargs).arguments
            first = self._trainer.accelerator.process_index * len(given["prompts"])
            own = rewards[first : first + len(given["prompts"])].tolist()
            self._scores = Scores(list(given["prompts"]), list(given["completions"]), own)
        return rewards

    def _generate_and_score(self, generate: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._scores = None
        batch = generate(inputs, *args, **kwargs)
        if not self._trainer.model.training:
            return batch
        speakers: list[Speaker] = []
        with self._guard.within("roles of a generation"):
            speakers = [self._rows.speaker(row) for row in inputs]
            batch = {**batch, ROLE_IDS: torch.tensor([self._rows.id(speaker) for speaker in speakers], dtype=torch.int64)}
        with self._guard.within("rollouts of a generation"):
            if self._scores is not None and speakers:
                rollouts = rollouts_of(self._scores, batch, speakers, *self._asked(len(speakers)))
                batch = {**batch, ROLLOUTS: self._numbered(rollouts)}
                self._log(rollouts)
        return batch

    def _asked(self, size: int) -> tuple[list[str], dict[str, float], FormatValid | None]:
        """What `rollouts_of` has to know of the trainer: the group of each rollout, and the weights of the reward functions."""
        weights = dict(zip(self._trainer.reward_func_names, self._trainer.reward_weights.tolist(), strict=True))
        # The rollouts of one prompt follow each other over all processes.
        first = self._trainer.accelerator.process_index * size
        self._count += 1
        groups = [f"{self._count}.{(first + at) // self._trainer.num_generations}" for at in range(size)]
        return groups, weights, self._format_valid

    def _numbered(self, rollouts: Sequence[Rollout]) -> Tensor:
        numbers = range(self._made, self._made + len(rollouts))
        self._made += len(rollouts)
        self._rollouts = dict(zip(numbers, rollouts, strict=True))
        return torch.tensor(numbers, dtype=torch.int64)

    def _log(self, rollouts: Sequence[Rollout]) -> None:
        watcher = self._watched.watcher
        if watcher is None:
            return
        for role, metrics in metrics_of(rollouts).items():
            watcher.log(metrics, role=role, stream="train")
        for role, scope, values in shares_of(rollouts):
            watcher.log(values, role=role, scope=scope, stream="train")
