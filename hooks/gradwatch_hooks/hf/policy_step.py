"""What the log-probabilities of one optimizer step's micro-batches say of the policy, by role."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradwatch.quantities.per_role import RoleReading
from gradwatch.quantities.policy import PolicyBatch, measure_policy

OF_THE_TRAINER = frozenset("entropy kl clip_fraction clip_fraction_low clip_fraction_high".split())
"""What TRL logs itself of all roles together."""
FIELDS = {
    "old_logprobs_BT": "old_per_token_logps",
    "ref_logprobs_BT": "ref_per_token_logps",
    "rollout_logprobs_BT": "sampling_per_token_logps",
    "advantages": "advantages",
}
"""Arguments of `PolicyBatch`, and where a batch of TRL's has them."""


class PolicyStep:
    """Keeps what each micro-batch computed, where it lies, until the step is measured as one batch.

    `names` are the roles that role ids index; ratios are clipped to [1 - low, 1 + high] of `clip`, None where they are not clipped
    token by token.
    """

    def __init__(self, names: Sequence[str], clip: tuple[float, float] | None) -> None:
        self._names = tuple(names)
        self._clip: tuple[float, float] | tuple[None, None] = clip if clip is not None else (None, None)
        self._parts: defaultdict[str, list[Tensor]] = defaultdict(list)
        self._sequences = 0

    def add(
        self,
        logprobs_BT: Tensor,
        entropies_BT: Tensor | None,
        mask_BT: Tensor,
        ids_B: Tensor,
        batch: Mapping[str, Tensor | None],
    ) -> None:
        """One micro-batch of B completions of at most T tokens, with each one's role id."""
        rows_B = torch.arange(self._sequences, self._sequences + len(mask_BT), device=mask_BT.device)
        self._sequences += len(mask_BT)
        given = {argument: batch.get(field) for argument, field in FIELDS.items()}
        given |= {"logprobs_BT": logprobs_BT, "entropies_BT": entropies_BT, "mask_BT": mask_BT}
        given |= {"roles": ids_B if self._names else None, "sequence_BT": rows_B[:, None].expand(mask_BT.shape)}
        for argument, values in given.items():
            if values is not None:
                self._parts[argument].append(values.detach().reshape(-1))

    def take(self) -> RoleReading | None:
        """The step's numbers by role, None where no batch came. What not all batches had is absent."""
        parts, self._parts, self._sequences = self._parts, defaultdict(list), 0
        if not parts:
            return None
        whole = {name: torch.cat(each) for name, each in parts.items() if len(each) == len(parts["mask_BT"])}
        low, high = self._clip
        return _without_the_trainers(measure_policy(PolicyBatch(**whole, names=self._names, clip_low=low, clip_high=high)))


def _without_the_trainers(reading: RoleReading) -> RoleReading:
    """A reading in which what the trainer logs itself of all roles together is absent."""
    present_VR = reading.present_VR.clone()
    present_VR[[at for at, key in enumerate(reading.keys) if key in OF_THE_TRAINER], -1] = 0
    return replace(reading, present_VR=present_VR)
