"""What verl's batches say of roles and rollouts, and where their sequences lie in the model's input."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hooks.verl_stub import DataProto  # noqa: TID251 - the folder of these tests
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch_hooks.verl import add_role_ids, samples_of
from gradwatch_hooks.verl.packing import Sequences, place
from gradwatch_hooks.verl.role_ids import agent_ids, read_role_ids, trainer_step

ROLES = ("solver", "verifier")


class Tokenizer:
    """Spells tokens out, all but padding."""

    def batch_decode(self, ids: Tensor, skip_special_tokens: bool) -> list[str]:
        assert skip_special_tokens
        return [" ".join(str(one) for one in row.tolist() if one) for row in ids]


def test_rollouts_become_samples() -> None:
    batch = DataProto(
        {
            "prompts": torch.tensor([[0, 5], [6, 7]]),
            "responses": torch.tensor([[8, 9, 0], [3, 0, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
            "token_level_scores": torch.tensor([[0.0, 1.0, 0.0], [math.nan, 0.0, 0.0]]),
            "advantages": torch.tensor([[2.0, 4.0, math.nan], [-1.5, 9.0, 9.0]]),
        },
        {"agent_id": ["solver", "verifier"], "uid": ["a", "b"]},
    )
    first, second = samples_of(batch, Tokenizer())
    assert first == {
        "role": "solver",
        "group": "a",
        "prompt": "5",
        "output": "8 9",
        "rewards": {"score": 1.0},
        "advantage": 3.0,
        "prompt_tokens": 1,
        "output_tokens": 2,
    }
    assert math.isnan(second["rewards"]["score"])
    assert second["advantage"] == -1.5


def test_role_ids_are_put_into_a_batch_by_its_agents() -> None:
    proto = DataProto({"input_ids": torch.zeros(3, 2)}, {"agent_id": ["verifier", "solver", "verifier"]})
    assert add_role_ids(proto, ROLES) is proto
    assert proto.batch["role_ids"].tolist() == [1, 0, 1]
    assert add_role_ids(proto, ROLES, speakers=["solver"] * 3).batch["role_ids"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["solver", "critic", "solver"], "'critic' among the rows, but the roles are solver, verifier"),
        (["solver"], "1 names for 3 rows"),
        (None, "has no 'agent_id'"),
    ],
)
def test_role_ids_that_cannot_be_put_there_are_refused(names: list[str] | None, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        add_role_ids(DataProto({"input_ids": torch.zeros(3, 2)}, {}), ROLES, names)


class Column:
    """A stack of objects, as tensordict has it."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def tolist(self) -> list[Any]:
        return self.rows


def test_agents_are_read_from_every_kind_of_column() -> None:
    names = ["solver", "somebody", "verifier"]
    for field in (names, Column(names)):
        assert agent_ids({"agent_id": field}) == names
        ids = read_role_ids({"agent_id": field}, ROLES)
        assert ids is not None
        assert ids.tolist() == [0, -1, 1]
    assert read_role_ids({}, ROLES) is None
    assert agent_ids({"extra_fields": [{"agent_id": "solver"}, {}]}) is None
    assert [trainer_step({"global_steps": held}) for held in (3, Column([3, 5]), torch.tensor([4, 2]), None)] == [3, 5, 4, None]


def test_a_packed_row_says_which_sequence_each_position_belongs_to() -> None:
    found = Sequences(torch.tensor([1, 0]), torch.tensor([2, 3]), torch.tensor([1, 2]))
    placed = place(found, 1, 6)
    assert placed is not None
    assert placed.ids.tolist() == [[1, 1, 0, 0, 0, -1]]
    assert placed.sequences is not None
    assert placed.sequences.tolist() == [[0, 0, 1, 1, 1, -1]]
    assert placed.mask.tolist() == [[1, 0, 2, 0, 0, 0]]
    assert place(found, 1, 4) is None
    assert place(found, 3, 6) is None
