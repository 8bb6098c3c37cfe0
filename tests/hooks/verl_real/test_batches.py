"""Role ids through verl's own batches: from the trainer's `DataProto` to the micro-batches of a worker."""

from __future__ import annotations

import numpy as np
import torch
from verl import DataProto
from verl.utils import tensordict_utils as tu
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.utils.padding import left_right_2_no_padding

from gradwatch_hooks.verl import add_role_ids, samples_of
from gradwatch_hooks.verl.role_ids import read_role_ids, trainer_step

ROLES = ("solver", "verifier")
ROWS, PROMPT, RESPONSE = 8, 3, 4


class Tokenizer:
    def batch_decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, row.tolist())) for row in ids]


def proto() -> DataProto:
    """What `_update_actor` gets: left and right padded rows, the agents' names beside them."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 50, (ROWS, PROMPT + RESPONSE), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(ROWS):
        mask[row, : row % PROMPT] = 0
        mask[row, PROMPT + 1 + row % RESPONSE :] = 0
    return DataProto.from_dict(
        tensors={
            "input_ids": ids,
            "prompts": ids[:, :PROMPT],
            "responses": ids[:, PROMPT:],
            "attention_mask": mask,
            "response_mask": mask[:, PROMPT:],
            "position_ids": mask.cumsum(1) - 1,
            "advantages": torch.arange(ROWS)[:, None].expand(ROWS, RESPONSE).float(),
            "row": torch.arange(ROWS),
        },
        non_tensors={"agent_id": np.array([ROLES[row % 3 == 0] for row in range(ROWS)], dtype=object)},
        meta_info={"global_steps": 17, "temperature": 1.0},
    )


def test_role_ids_and_agents_reach_the_micro_batches_with_their_rows() -> None:
    data = left_right_2_no_padding(add_role_ids(proto(), ROLES).to_tensordict())
    tu.assign_non_tensor(data, use_dynamic_bsz=True, max_token_len_per_gpu=14)
    micro_batches, _ = prepare_micro_batches(data)
    assert len(micro_batches) > 2
    rows = [row for one in micro_batches for row in one["row"].tolist()]
    assert rows != sorted(rows)
    for one in micro_batches:
        wanted = [int(row % 3 == 0) for row in one["row"].tolist()]
        assert read_role_ids(one, ROLES).tolist() == wanted
        del one["role_ids"]
        assert read_role_ids(one, ROLES).tolist() == wanted
        assert trainer_step(one) == 17


def test_rollouts_become_samples() -> None:
    samples = list(samples_of(proto(), Tokenizer()))
    assert [one["role"] for one in samples] == [ROLES[row % 3 == 0] for row in range(ROWS)]
    assert [one["advantage"] for one in samples] == [float(row) for row in range(ROWS)]
    assert [one["output_tokens"] for one in samples] == [1 + row % RESPONSE for row in range(ROWS)]
