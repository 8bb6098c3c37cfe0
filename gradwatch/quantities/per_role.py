"""Numbers by role: sums and moments of values that each belong to a role, without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwatch.errors import SettingsError

OVERALL = ""


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Whose each of M values is: row r of `owned_RM` (bool) marks the values of `names[r]`, the last row all that are counted.

    Values of no role are in the last row alone, so R = len(names) + 1.
    """

    names: tuple[str, ...]
    owned_RM: Tensor

    def only(self, kept_M: Tensor) -> Owners:
        """The same, of the values where `kept_M` (bool) is true."""
        return Owners(self.names, self.owned_RM & kept_M)


def owners_of(roles: Tensor | None, names: Sequence[str], counted: Tensor) -> Owners:
    """Who owns the values that are `counted` (any shape, true or not 0): `roles`, of that shape, holds indices into `names`.

    An index that is negative or beyond the names is no role, like a name that is empty; names that are equal are one role. Flattens
    its arguments. Raises SettingsError where shapes or types are wrong; reads nothing from the device.
    """
    counted_M = counted.detach().reshape(-1) != 0
    if roles is None:
        return Owners((), counted_M[None])
    if roles.shape != counted.shape or roles.is_floating_point() or roles.dtype == torch.bool:
        raise SettingsError(
            f"roles of shape {tuple(roles.shape)} and {roles.dtype}: give whole numbers of shape {tuple(counted.shape)}"
        )
    if not names:
        raise SettingsError("roles without names: give the name of each index")
    unique = tuple(name for name in dict.fromkeys(names) if name)
    roles_M = onto(roles.detach(), counted.device).reshape(-1)
    rows = [_any_of(roles_M, [index for index, one in enumerate(names) if one == name]) & counted_M for name in unique]
    return Owners(unique, torch.stack([*rows, counted_M]))


def _any_of(roles_M: Tensor, indices: Sequence[int]) -> Tensor:
    found = roles_M == indices[0]
    for index in indices[1:]:
        found = found | (roles_M == index)
    return found


def wide(values: Tensor) -> Tensor:
    """The values, detached, as float64; as float32 where the device has no float64."""
    return values.detach().to(torch.float32 if values.device.type == "mps" else torch.float64)


def onto(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device; going to an accelerator, without waiting for what it does."""
    return values.to(device, non_blocking=device.type != "cpu")


def sum_by_role(values_M: Tensor, owners: Owners) -> Tensor:
    """The sum of each row's values: (R,). NaN and infinities stay in the rows that own them."""
    return torch.where(owners.owned_RM, wide(values_M), 0).sum(1)


def mean_by_role(values_M: Tensor, owners: Owners) -> Tensor:
    """The mean of each row's values: (R,). NaN and infinities stay in the rows that own them; a row without values is NaN."""
    return sum_by_role(values_M, owners) / owners.owned_RM.sum(1)


def max_by_role(values_M: Tensor, owners: Owners) -> Tensor:
    """The largest of each row's values: (R,). NaN where one is NaN; −Inf for a row without values."""
    rows_RM = torch.where(owners.owned_RM, wide(values_M), -torch.inf)
    return rows_RM.amax(1) if rows_RM.shape[1] else rows_RM.sum(1) - torch.inf


def moments_by_role(values_M: Tensor, owners: Owners) -> dict[str, Tensor]:
    """Moments of each row's values, (R,) each, as a run makes them of an array.

    `mean`, `std` (population, ddof=0), `min` and `max` are of the finite values, NaN where there is none; `count` is the number of
    all, `nonfinite` that of NaN and infinities. The `std` of values that are all the same is 0 exactly: they are told by their
    extremes, not by rounded squares.
    """
    values_M = wide(values_M)
    finite = owners.only(values_M.isfinite())
    low_R, high_R = -max_by_role(-values_M, finite), max_by_role(values_M, finite)
    count_R, finite_R = owners.owned_RM.sum(1).to(values_M), finite.owned_RM.sum(1).to(values_M)
    # The mean of 13 times .99 is not .99: its rounding would be taken for a deviation.
    mean_R = torch.where(low_R == high_R, low_R, mean_by_role(values_M, finite))
    squares_R = torch.where(finite.owned_RM, (values_M - mean_R[:, None]).square(), 0).sum(1)
    known = {"mean": mean_R, "std": (squares_R / finite_R).sqrt(), "min": low_R, "max": high_R}
    found = {name: torch.where(finite_R == 0, torch.nan, value) for name, value in known.items()}
    return {**found, "count": count_R, "nonfinite": count_R - finite_R}


@dataclass(frozen=True, slots=True, eq=False)
class RoleReading:
    """Numbers by role that are still on the device: `values_VR` of V keys and R rows, where `present_VR` is not 0."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    values_VR: Tensor
    present_VR: Tensor

    def pack(self) -> Tensor:
        """Everything that is to be read, as one vector."""
        return torch.stack([self.values_VR, self.present_VR]).reshape(-1)

    def read(self) -> dict[str, dict[str, float]]:
        """The numbers by role and metric key, those of all values under the empty role, with one host sync.

        `for role, values in reading.read().items(): run.log(values, step, role=role)`. What does not exist is absent: a role
        without values has no entry at all.
        """
        return self.unpack(self.pack().tolist())

    def unpack(self, numbers: Sequence[float]) -> dict[str, dict[str, float]]:
        """The numbers, from what `pack` gave."""
        rows = len(self.names) + 1
        cells = [numbers[start : start + rows] for start in range(0, len(numbers), rows)]
        values, present = cells[: len(self.keys)], cells[len(self.keys) :]
        found: dict[str, dict[str, float]] = {}
        for row, role in enumerate((*self.names, OVERALL)):
            there = {key: values[at][row] for at, key in enumerate(self.keys) if present[at][row]}
            if there:
                found[role] = there
        return found


def reading_of(values: Mapping[str, Tensor], owners: Owners) -> RoleReading:
    """A reading of (R,) numbers by metric key; a row that owns no value is absent."""
    there_R = owners.owned_RM.any(1)
    values_VR = torch.stack([wide(one) for one in values.values()])
    return RoleReading(owners.names, tuple(values), values_VR, there_R.to(values_VR).expand_as(values_VR))


def moments_reading(metric: str, values_M: Tensor, owners: Owners, stats: Sequence[str] = ()) -> RoleReading:
    """A reading of moments under `metric/mean`, `metric/std` …; of all of them, or of `stats`."""
    moments = moments_by_role(values_M, owners)
    return reading_of({f"{metric}/{stat}": moments[stat] for stat in stats or moments}, owners)


def join_readings(*readings: RoleReading) -> RoleReading:
    """Several readings of the same roles as one, to be read with one host sync.

    Raises SettingsError where they are not of the same roles.
    """
    first = readings[0]
    odd = next((one for one in readings if one.names != first.names), None)
    if odd is not None:
        raise SettingsError(f"readings of the roles {first.names} and {odd.names}: join those of the same roles in the same order")
    device = next((one.values_VR.device for one in readings if one.values_VR.device.type != "cpu"), first.values_VR.device)
    return RoleReading(
        first.names,
        tuple(key for one in readings for key in one.keys),
        torch.cat([onto(one.values_VR, device) for one in readings]),
        torch.cat([onto(one.present_VR, device) for one in readings]),
    )
