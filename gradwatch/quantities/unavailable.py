"""When a gradient cannot be known here: said with its reason, never shown as 0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gradwatch.quantities.parameter_groups import Member

# Attributes that DeepSpeed puts on parameters: stage 3 the first three, stages 1 and 2 (and its bf16 optimizer) the last.
ZERO_MARKS = ("ds_id", "ds_tensor", "ds_status", "_hp_mapping")


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A quantity that cannot be measured, and why."""

    reason: str


def why_partial(members: Iterable[Member]) -> str:
    """Why the gradients of these parameters are not the whole truth on this process; empty where nothing speaks against it."""
    return next(filter(None, map(_why, members)), "")


def _why(member: Member) -> str:
    name, parameter = member.name, member.parameter
    if any(hasattr(parameter, mark) for mark in ZERO_MARKS):
        return (
            f"DeepSpeed ZeRO keeps the gradient of {name!r} in partitions of its own; after the step, "
            "engine.get_global_grad_norm() knows the norm"
        )
    if not parameter.requires_grad:
        return ""
    if parameter.is_meta:
        return f"parameter {name!r} is on the meta device; group the parameters again once the model has its weights"
    if not parameter.numel() and not member.sharding.groups:
        return f"parameter {name!r} holds no value on this process: it is kept in partitions (exclude it if it is empty by design)"
    return ""
