"""GRPO by role: the roles of each micro-batch that is learned from, and the samples that go with the step's record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from gradwatch_hooks.hf.generations import ROLE_IDS, ROLLOUTS, Generations
from gradwatch_hooks.hf.policy_step import PolicyStep
from gradwatch_hooks.hf.row_roles import RowRoles
from gradwatch_hooks.hf.watched import WatchedTrainer
from gradwatch_hooks.torch import Watcher

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""TRL's losses that clip a ratio from both sides."""


class GrpoRoles:
    """Wraps where one GRPOTrainer learns.

    Roles are opened in `compute_loss` and closed after `training_step`: backward, and the forward passes that checkpointing makes
    again, come between.
    """

    def __init__(self, watched: WatchedTrainer, rows: RowRoles, generations: Generations) -> None:
        self._watched = watched
        self._guard = watched.callback.guard
        self._has_roles = bool(rows.speakers)
        self._generations = generations
        self._is_training = self._is_in_loss = False
        self._tokens: tuple[Tensor, Tensor | None] | None = None
        self._policy = PolicyStep([speaker.role for speaker in rows.speakers], _clip(watched.trainer))
        self._samples: list[dict[str, Any]] = []
        self._sequences = 0
        watched.callback.before_record = self._before_record
        watched.methods.wrap("_get_per_token_logps_and_entropies", self._logps_and_entropies)
        watched.methods.wrap("compute_loss", self._compute_loss)
        watched.methods.wrap("training_step", self._training_step)

    def _training_step(self, step: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        watcher, self._is_training = self._watched.watcher, True
        try:
            return step(*args, **kwargs)
        finally:
            self._is_training = False
            if watcher is not None:
                watcher.close_roles()

    def _compute_loss(self, compute: Callable[..., Any], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = self._watched.watcher
        if not self._is_training or watcher is None or ROLE_IDS not in inputs:
            return compute(model, inputs, *args, **kwargs)
        with self._guard.within("roles of a batch"):
            self._open(watcher, inputs)
        self._is_in_loss, self._tokens = True, None
        try:
            loss = compute(model, inputs, *args, **kwargs)
        finally:
            self._is_in_loss = False
        with self._guard.within("the policy by role"):
            if self._tokens is not None:
                self._policy.add(*self._tokens, _mask(inputs), inputs[ROLE_IDS], inputs)
        return loss

    def _open(self, watcher: Watcher, inputs: Mapping[str, Tensor]) -> None:
        numbers = inputs[ROLLOUTS].tolist() if ROLLOUTS in inputs else []
        for place, number in enumerate(numbers, self._sequences):
            rollout = self._generations.take(number)
            if rollout is not None:
                self._samples.append({**rollout.as_sample(), "sequence": place if self._has_roles else None})
        self._sequences += len(inputs[ROLE_IDS])
        if self._has_roles:
            watcher.open_roles(inputs[ROLE_IDS], mask=_mask(inputs))

    def _logps_and_entropies(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        got = compute(*args, **kwargs)
        with self._guard.within("log-probabilities of a batch"):
            if self._is_in_loss:
                logprobs_BT, entropies_BT, *_ = got
                self._tokens = logprobs_BT.detach(), None if entropies_BT is None else entropies_BT.detach()
        return got

    def _before_record(self, watcher: Watcher) -> None:
        """Send the rollouts that this step learned from for the first time, with the record that knows their influence."""
        samples, self._samples, self._sequences = self._samples, [], 0
        watcher.log_samples(samples)
        reading = self._policy.take()
        if reading is not None:
            watcher.observe(reading)


def _mask(inputs: Mapping[str, Tensor]) -> Tensor:
    """1 where a token of a completion enters the loss, 0 elsewhere: (B, T)."""
    mask, tools = inputs["completion_mask"], inputs.get("tool_mask")
    return mask if tools is None else mask * tools


def _clip(trainer: Any) -> tuple[float, float] | None:
    """How far below and above 1 a token's ratio may lie; None where the loss does not clip token by token."""
    is_clipped = trainer.loss_type in CLIPPED and trainer.importance_sampling_level == "token"
    return (trainer.epsilon_low, trainer.epsilon_high) if is_clipped else None
