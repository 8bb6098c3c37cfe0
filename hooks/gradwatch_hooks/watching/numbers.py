"""One step's numbers on the device, packed into one vector and unpacked on the host: one host sync a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite, nan, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from gradwatch.quantities.grad_norm import GradNormReading, GradNorms
from gradwatch.quantities.located import Located, LocatorReading
from gradwatch.quantities.role_gradients import RoleGradients, RoleGradReading, stack_numbers
from gradwatch.quantities.roles import UNASSIGNED, Speaker
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.role_steps import MeasuredRoles

LEAST_DIFFERENCE = (
    0.02  # relative, between the norm of all roles together and that of the gradient; an error this large is no rounding
)


class Unpacked(NamedTuple):
    """A step's numbers on the host."""

    loss_scale: float | None
    norms: GradNorms | Unavailable
    roles: RoleGradients | Unavailable | None
    place: Located | None


@dataclass(frozen=True, slots=True, eq=False)
class StepNumbers:
    """What was read of a step: norms, the loss scale they were divided by, the roles, and what share of ‖g‖² the engine covers."""

    device: torch.device
    norms: GradNormReading | Unavailable
    loss_scale: Tensor | float | None
    roles: MeasuredRoles | Unavailable | None
    speakers: tuple[Speaker, ...]
    coverage: Tensor | float = nan
    place: LocatorReading | None = None

    def pack(self) -> Tensor:
        """Everything in one vector."""
        parts: list[Tensor | float] = [nan if self.loss_scale is None else self.loss_scale]
        if self.place is not None:
            parts.append(self.place.pack())
        if isinstance(self.norms, GradNormReading):
            parts += [self.norms.total, self.norms.norms, self.norms.present]
        if isinstance(self.roles, MeasuredRoles):
            reading = self.roles.reading
            parts += [reading.gram_KK, self.roles.counts_K, self.coverage, reading.norm_error, reading.cosine_error]
            parts += [one for one in (reading.influence_N, reading.squares_N) if one is not None]
        return stack_numbers(*parts, device=self.device)

    def unpack(self, numbers: list[float]) -> Unpacked:
        """What was packed, as numbers."""
        left = iter(numbers)
        scale = next(left)
        place = None if self.place is None else self.place.unpack(list(islice(left, self.place.size)))
        norms = self._norms(left)
        roles = self._roles(left, self.roles) if isinstance(self.roles, MeasuredRoles) else self.roles
        if isinstance(roles, RoleGradients) and isinstance(norms, GradNorms):
            roles = checked(roles, norms.total)
        return Unpacked(None if self.loss_scale is None else scale, norms, roles, place)

    def _norms(self, left: Iterator[float]) -> GradNorms | Unavailable:
        if isinstance(self.norms, Unavailable):
            return self.norms
        names = self.norms.names
        total, each, present = next(left), list(islice(left, len(names))), list(islice(left, len(names)))
        groups = {name: norm for name, norm, there in zip(names, each, present, strict=True) if there}
        return GradNorms(total, groups) if groups else Unavailable("no parameter has a gradient")

    def _roles(self, left: Iterator[float], roles: MeasuredRoles) -> RoleGradients:
        size = len(self.speakers)
        gram = [tuple(islice(left, size)) for _ in range(size)]
        counts = tuple(islice(left, size))
        coverage, norm_error, cosine_error = islice(left, 3)
        # Room for speakers that never came is left out; the last is whatever was given no role.
        kept = [k for k in range(size) if self.speakers[k] != UNASSIGNED or k == size - 1]
        return RoleGradients(
            roles.reading.engine,
            tuple(self.speakers[k] for k in kept),
            tuple(tuple(gram[k][j] for j in kept) for k in kept),
            coverage,
            norm_error,
            cosine_error,
            tuple(counts[k] for k in kept),
            tuple(islice(left, _size(roles.reading.influence_N))),
            tuple(islice(left, _size(roles.reading.squares_N))),
            roles.reading.by_position,
        )


def _size(tensor: Tensor | None) -> int:
    return 0 if tensor is None else len(tensor)


def checked(roles: RoleGradients, total: float) -> RoleGradients | Unavailable:
    """Roles whose gradients add up to the gradient that training sees; a reading that does not is no reading.

    What little they are off is an error that the engine could not know of.
    """
    together = sum(map(sum, roles.gram))
    expected = total * sqrt(max(0.0, roles.coverage)) if isfinite(roles.coverage) else nan
    if not isfinite(together) or not isfinite(expected) or not expected:
        return roles
    off = abs(sqrt(max(0.0, together)) - expected) / expected
    if off <= max(LEAST_DIFFERENCE, 2 * roles.norm_error):
        return replace(roles, norm_error=max(off, roles.norm_error))
    return Unavailable(
        f"the roles' gradients sum to a norm of {sqrt(max(0.0, together)):.4g}, the gradient's is {expected:.4g} (engine "
        f"{roles.engine}): a weight is used outside of its module's forward, a backward ran outside of the roles, gradients of the "
        "step before were not cleared (zero_grad), or they were changed before the step"
    )


def reading_of(roles: MeasuredRoles | Unavailable | None) -> RoleGradReading | None:
    """The engine's reading, where there is one."""
    return roles.reading if isinstance(roles, MeasuredRoles) else None
