"""The positions of a batch of sequences: which enter the loss, whose they are, and in which sequence they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.per_role import Owners, onto, owners_of, wide


@dataclass(frozen=True, slots=True, eq=False)
class PolicyTokens:
    """The M positions of a batch, flattened.

    `owners` are those of the positions that enter the loss; `sequence_M` (int64) is the sequence of each, below `sequences` (N);
    `shape` is that of the batch before it was flattened.
    """

    owners: Owners
    sequence_M: Tensor
    sequences: int
    shape: torch.Size

    def flat(self, values: Tensor, name: str = "values") -> Tensor:
        """Values of the batch's shape as float64 (M,). Raises SettingsError where the shape is another."""
        if values.shape != self.shape:
            raise SettingsError(
                f"{name} of shape {tuple(values.shape)} beside a mask of shape {tuple(self.shape)}: give them alike"
            )
        return wide(onto(values, self.sequence_M.device)).reshape(-1)

    def spread(self, values: Tensor, name: str = "values") -> Tensor:
        """Values of each sequence (N,), or of each position, as float64 of each position: (M,)."""
        if values.dim() != 1 or values.shape == self.shape:
            return self.flat(values, name)
        return wide(self.each_sequence(values, name))[self.sequence_M]

    def each_sequence(self, values: Tensor, name: str = "values") -> Tensor:
        """Values of each sequence (N,), on the batch's device. Raises SettingsError where there are more or less of them."""
        if len(values) != self.sequences:
            raise SettingsError(f"{name} of shape {tuple(values.shape)} for {self.sequences} sequences: give one for each")
        return onto(values, self.sequence_M.device)

    def owners_of_sequences(self) -> Owners:
        """Whose each of the N sequences is: every role's that has a token in it."""
        counts_RN = self.sum_by_sequence(torch.ones_like(self.sequence_M, dtype=torch.float32))
        return Owners(self.owners.names, counts_RN > 0)

    def sum_by_sequence(self, values_M: Tensor) -> Tensor:
        """The sum of each row's values in each sequence: (R, N)."""
        owned_RM = torch.where(self.owners.owned_RM, values_M, 0)
        sums_RN = values_M.new_zeros(len(owned_RM), self.sequences)
        return sums_RN.index_add_(1, self.sequence_M, owned_RM)


def place_tokens(
    mask: Tensor, roles: Tensor | None = None, names: Sequence[str] = (), sequences: Tensor | None = None, count: int | None = None
) -> PolicyTokens:
    """Read a mask (B, T), not 0 where a token enters the loss, and who speaks there.

    `roles` are indices into `names`, -1 for none, one for each sequence (N,) or for each position (B, T). Each row is a sequence;
    in packed rows `sequences` (B, T) numbers them, 0 to N - 1 over the whole batch, -1 for padding, as `BatchRoles.sequence_BT`
    does. A flat mask (M,) needs them too. `count` is N where neither roles nor rows tell it. What lies in no sequence is not
    counted. Reads nothing from the device. Raises SettingsError where shapes are wrong.
    """
    if mask.dim() not in (1, 2) or (mask.dim() == 1 and sequences is None):
        raise SettingsError(f"a mask of shape {tuple(mask.shape)}: give (B, T), or (M,) with the sequence of each position")
    roles_N = roles if roles is not None and roles.dim() == 1 and roles.shape != mask.shape else None
    number, sequence_M, inside_M = _sequences(mask, sequences, count if roles_N is None else len(roles_N))
    if roles_N is not None:
        if len(roles_N) != number:
            raise SettingsError(
                f"roles of shape {tuple(roles_N.shape)} for {number} sequences: give one for each, or for each token"
            )
        roles = onto(roles_N.detach(), mask.device)[sequence_M].view(mask.shape)
    counted = (mask.detach() != 0) & inside_M.view(mask.shape)
    return PolicyTokens(owners_of(roles, names, counted), sequence_M, number, mask.shape)


def _sequences(mask: Tensor, sequences: Tensor | None, count: int | None) -> tuple[int, Tensor, Tensor]:
    """How many sequences there are (or may be), that of each position, and whether it lies in one."""
    if sequences is None:
        rows_M = torch.arange(len(mask), device=mask.device)[:, None].expand(mask.shape).reshape(-1)
        return len(mask), rows_M, torch.ones_like(rows_M, dtype=torch.bool)
    if sequences.shape != mask.shape:
        raise SettingsError(f"sequences of shape {tuple(sequences.shape)} beside a mask of {tuple(mask.shape)}: give them alike")
    number = mask.numel() if count is None else count
    if not number and mask.numel():
        raise SettingsError(f"a mask of shape {tuple(mask.shape)} for 0 sequences: give the role of each sequence, or no roles")
    given_M = onto(sequences.detach(), mask.device).reshape(-1).long()
    # An index out of range would end the process's work on the device.
    inside_M = (given_M >= 0) & (given_M < number)
    return number, torch.where(inside_M, given_M, 0), inside_M
