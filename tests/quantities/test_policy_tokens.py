"""Which tokens count, and in which sequence they lie."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from quantities.role_batches import batches, positions, tokens_of
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.per_role import reading_of, sum_by_role
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.policy_tokens import place_tokens
from gradwatch.quantities.roles import assign_roles

ONES = torch.ones(2, 3)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_tokens_and_sequences_are_those_of_the_slow_twin(batch: PolicyBatch) -> None:
    tokens, own = tokens_of(batch), positions(batch)
    counts = reading_of({"x": sum_by_role(torch.ones(batch.mask_BT.numel()), tokens.owners)}, tokens.owners).read()
    assert counts == {role: {"x": float(len(found))} for role, found in own.items()}
    owners = tokens.owners_of_sequences()
    for row, role in enumerate((*owners.names, "")):
        assert owners.owned_RM[row].nonzero()[:, 0].tolist() == sorted({one.sequence for one in own.get(role, [])})


def test_packed_roles_as_the_watcher_reads_them_are_taken_as_they_are() -> None:
    ids = torch.tensor([[-1, 0, 0, 1, 1, -1], [1, 1, 1, 1, -1, -1]])
    assigned = assign_roles(ids, 2, torch.tensor([[0, 0, 0, 1, 1, -1], [0, 0, 0, 0, -1, -1]]))
    tokens = place_tokens(torch.ones(2, 6), assigned.speaker_N, ("solver", "verifier"), assigned.sequence_BT)
    assert tokens.sequences == 3
    assert tokens.owners.owned_RM.sum(1).tolist() == [3, 6, 9]


def test_a_flat_batch_is_that_of_its_rows() -> None:
    sequences, roles = torch.tensor([0, 0, 1, 1, 1, -1]), torch.tensor([1, 0])
    tokens = place_tokens(torch.ones(6), roles, ("solver", "verifier"), sequences)
    assert tokens.owners.owned_RM.tolist() == [
        [False, False, True, True, True, False],
        [True, True, False, False, False, False],
        [True, True, True, True, True, False],
    ]
    assert tokens.spread(torch.tensor([5.0, 7.0])).tolist() == [5, 5, 7, 7, 7, 5]


def test_a_sequence_beyond_those_that_there_are_is_not_counted() -> None:
    tokens = place_tokens(ONES, None, (), torch.tensor([[0, 1, 2], [2, 99, -1]]), count=2)
    assert tokens.owners.owned_RM[-1].tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("mask", "roles", "sequences", "said"),
    [
        (torch.ones(3), None, None, "with the sequence of each position"),
        (torch.ones(1, 2, 3), None, None, r"give \(B, T\)"),
        (ONES, torch.zeros(5, dtype=torch.int64), None, "5,.* for 2 sequences"),
        (ONES, torch.zeros(3, 2, dtype=torch.int64), None, r"shape \(3, 2\)"),
        (ONES, None, torch.zeros(3, 2, dtype=torch.int64), "give them alike"),
        (ONES, torch.zeros(0, dtype=torch.int64), torch.full((2, 3), -1), "0 sequences"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_a_sentence(
    mask: Tensor, roles: Tensor | None, sequences: Tensor | None, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        place_tokens(mask, roles, ("solver",), sequences)


def test_values_of_another_shape_are_refused_with_a_sentence() -> None:
    tokens = place_tokens(ONES)
    with pytest.raises(SettingsError, match=r"logprobs of shape \(2, 4\)"):
        tokens.flat(torch.ones(2, 4), "logprobs")
    with pytest.raises(SettingsError, match="advantages of shape"):
        tokens.spread(torch.ones(3), "advantages")
