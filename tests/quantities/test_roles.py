"""Role ids in every shape a user has them."""

from __future__ import annotations

import pytest
import torch

from gradwatch.errors import SettingsError
from gradwatch.quantities.roles import assign_roles


def test_one_id_a_row_is_the_speaker_of_that_row():
    batch = assign_roles(torch.tensor([0, 2, 1]), 3)
    assert (batch.rows, batch.speaker_N.tolist(), batch.only_speaker, batch.is_mixed_within) == (3, [0, 2, 1], None, False)


def test_a_list_of_ids_will_do():
    assert assign_roles([1, 1], 2).only_speaker == 1


def test_a_prompt_without_a_role_belongs_to_the_role_that_answers():
    batch = assign_roles(torch.tensor([[-1, -1, 0, 0], [-1, 1, 1, -1]]), 2)
    assert (batch.speaker_N.tolist(), batch.is_mixed_within) == ([0, 1], False)


def test_a_row_without_any_role_is_nobodys():
    assert assign_roles(torch.tensor([[-1, -1], [0, 0]]), 1).speaker_N.tolist() == [-1, 0]


def test_two_roles_in_one_row_are_seen():
    ids = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    batch = assign_roles(ids, 2)
    assert batch.is_mixed_within
    assert torch.equal(batch.speaker_BT, ids)
    assert batch.speaker_N.tolist() == [-1, 1]
    assert batch.only_speaker is None


def test_packed_sequences_are_told_apart():
    ids = torch.tensor([[0, 0, 1, 1, -1], [1, 1, 1, 0, 0]])
    packed = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 1, 1]])
    batch = assign_roles(ids, 2, packed)
    assert batch.speaker_N.tolist() == [0, 1, 1, 0]
    assert batch.sequence_BT.tolist() == [[0, 0, 1, 1, -1], [2, 2, 2, 3, 3]]
    assert not batch.is_mixed_within


def test_packing_starts_anew_in_each_row():
    batch = assign_roles(torch.zeros(2, 2, dtype=torch.int64), 1, torch.zeros(2, 2, dtype=torch.int64))
    assert batch.sequence_BT.tolist() == [[0, 0], [1, 1]]


def test_two_roles_in_one_packed_sequence_are_seen():
    batch = assign_roles(torch.tensor([[0, 1, 1, 1]]), 2, torch.tensor([[0, 0, 1, 1]]))
    assert batch.is_mixed_within
    assert batch.speaker_N.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (torch.zeros(2, 3, 4, dtype=torch.int64), r"shape \(2, 3, 4\)"),
        (torch.zeros(2), "float32"),
        (torch.zeros(2, dtype=torch.bool), "bool"),
        (torch.tensor(1), r"shape \(\)"),
        (torch.tensor([0, 2]), "ids from 0 to 2: 2 names"),
        (torch.tensor([-2, 0]), "ids from -2 to 0"),
    ],
)
def test_what_are_no_role_ids_is_refused_in_words(ids, says):
    with pytest.raises(SettingsError, match=says):
        assign_roles(ids, 2)


def test_packing_needs_ids_for_each_position():
    with pytest.raises(SettingsError, match=r"need role ids of that shape, not \(2,\)"):
        assign_roles(torch.tensor([0, 1]), 2, torch.zeros(2, 3, dtype=torch.int64))


def test_an_empty_batch_has_no_speaker():
    assert assign_roles(torch.zeros(0, dtype=torch.int64), 2).only_speaker is None
    assert assign_roles(torch.zeros(2, 0, dtype=torch.int64), 2).speaker_N.tolist() == [-1, -1]
