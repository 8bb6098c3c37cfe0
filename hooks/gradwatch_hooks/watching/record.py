"""The record of one attempted optimizer step, and the metrics that are logged of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, isnan
from typing import NamedTuple

from gradwatch.quantities.grad_norm import GradNorms
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.watching.numbers import Unpacked


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What was measured of one attempted optimizer step, unscaled and before clipping.

    `grad_norm` is None where it is not available, and `why` says why; `groups` are the norms of module groups. `roles` is None
    where no roles were given, or where the budget left this step out; `Unavailable` where they could not be measured. `nonfinite`
    says where NaN or infinities were first seen, empty where there were none. `skipped` steps changed no weights.
    """

    step: int
    skipped: bool = False
    grad_norm: float | None = None
    why: str = ""
    groups: dict[str, float] = field(default_factory=dict)
    loss_scale: float | None = None
    roles: RoleGradients | Unavailable | None = None
    nonfinite: str = ""
    noise_scale: float | None = None


def to_record(step: int, skipped: bool, read: Unpacked) -> StepRecord:
    """The record of what was read of a step."""
    record = StepRecord(step, skipped, loss_scale=read.loss_scale, roles=read.roles, nonfinite=_place(read))
    if isinstance(read.norms, Unavailable):
        return replace(record, why=read.norms.reason)
    return replace(record, grad_norm=read.norms.total, groups=read.norms.groups)


def _place(read: Unpacked) -> str:
    """Where values are not finite. An output that is infinite by design, as a mask is, leaves the gradient as it was."""
    is_hurt = isinstance(read.norms, GradNorms) and not isfinite(read.norms.total)
    return read.place.sentence() if read.place and (is_hurt or read.place.gradient or read.place.weight) else ""


class Logged(NamedTuple):
    """Metrics that belong to the same axes."""

    metrics: dict[str, float]
    role: str = ""
    agent: str = ""
    scope: str = ""


def to_log(record: StepRecord) -> Iterator[Logged]:
    """A record as the catalogue's metrics. What was not measured is absent."""
    whole = {"grad_norm": record.grad_norm, "loss_scale": record.loss_scale, "grad_noise_scale": record.noise_scale}
    yield Logged({**{name: value for name, value in whole.items() if value is not None}, "step_skipped": float(record.skipped)})
    for scope, norm in record.groups.items():
        yield Logged({"grad_norm": norm}, scope=scope)
    if isinstance(record.roles, RoleGradients):
        yield from _roles(record.roles)


def _roles(roles: RoleGradients) -> Iterator[Logged]:
    scope = f"{roles.engine} by_position" if roles.by_position else roles.engine
    yield Logged(_known({"role_grad_coverage": roles.coverage, "role_grad_error": roles.norm_error}), scope=scope)
    for role in roles.roles:
        own = {
            "grad_norm": roles.norm(role),
            "grad_share": roles.share(role),
            "grad_norm_per_share": roles.norm_per_share(role),
        }
        yield Logged(_known(own), role=role)
        for other in roles.roles:
            if other > role:
                yield Logged(_known({"grad_cosine": roles.cosine(role, other)}), role=role, scope=other)
        yield from _instances(roles, role)


def _instances(roles: RoleGradients, role: str) -> Iterator[Logged]:
    agents = [one.agent for k, one in enumerate(roles.speakers) if one.role == role and one.agent and roles.gram[k][k] != 0]
    if len(agents) > 1:
        yield Logged({"instance_coherence": roles.coherence(role), "instance_count": float(len(agents))}, role=role)
    for agent in agents:
        yield Logged({"grad_norm": roles.norm(role, agent)}, role=role, agent=agent)


def _known(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without what is undefined: a share of nothing, or of a gradient that is not finite, which the norms tell."""
    return {name: value for name, value in metrics.items() if name == "grad_norm" or not isnan(value)}
