"""Rollouts of verl's trainer as samples: what each agent was asked and answered, and what it earned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from gradwatch_hooks.verl.role_ids import agent_ids


def samples_of(batch: Any, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """The rows of a `DataProto` whose advantages are known, for `Run.log_samples`.

        run.log_samples(samples_of(batch, self.tokenizer), step=self.global_steps)       # in the trainer, before update_actor

    Needs `prompts` (B, P), `responses` (B, R) and `attention_mask` (B, P + R). Where they are there: the role from `agent_id`, the
    group from `uid`, the reward `score` = Σ `token_level_scores` over tokens, the advantage as the mean over the response's tokens.
    """
    fields, objects = batch.batch, batch.non_tensor_batch
    prompts = tokenizer.batch_decode(fields["prompts"], skip_special_tokens=True)
    outputs = tokenizer.batch_decode(fields["responses"], skip_special_tokens=True)
    width = fields["prompts"].shape[1]
    asked_B = fields["attention_mask"][:, :width].sum(-1).tolist()
    mask_BR = fields["attention_mask"][:, width:]
    answered_B = mask_BR.sum(-1)
    scores = _of_rows(fields.get("token_level_scores", None), mask_BR)
    advantages = _of_rows(fields.get("advantages", None), mask_BR / answered_B.clamp(min=1)[:, None])
    roles, groups = agent_ids(objects), objects.get("uid", None)
    for row in range(len(prompts)):
        yield {
            "role": roles[row] if roles is not None else "",
            "group": str(groups[row]) if groups is not None else "",
            "prompt": prompts[row],
            "output": outputs[row],
            "rewards": {} if scores is None else {"score": scores[row]},
            "advantage": None if advantages is None else advantages[row],
            "prompt_tokens": asked_B[row],
            "output_tokens": int(answered_B[row]),
        }


def _of_rows(values_BR: Tensor | None, weight_BR: Tensor) -> list[float] | None:
    """Σ value · weight of each row. What is not finite where it counts stays so."""
    if values_BR is None:
        return None
    counted = values_BR.masked_fill(weight_BR == 0, 0.0) * weight_BR
    summed: list[float] = counted.float().sum(-1).tolist()
    return summed
