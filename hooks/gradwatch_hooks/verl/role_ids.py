"""Role ids in verl's batches: put in where a batch is made, and read again in the worker from its shuffled micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.roles import NOBODY

ROLE_IDS = "role_ids"
AGENT_ID = "agent_id"
EXTRA = "extra_fields"

B = TypeVar("B")


def add_role_ids(batch: B, roles: Sequence[str], speakers: Sequence[str] | None = None) -> B:
    """Give each row of a `DataProto` or `TensorDict` the index of its role, as the tensor field `role_ids` (B,), int64.

    Call it in the trainer before the actor is updated, with the `roles` that the worker is watched with. `speakers` names the role
    of each row; without it the rows' `agent_id` does. Returns the batch. Raises SettingsError for a name that is not among `roles`,
    and where the rows have no names or a wrong number of them.
    """
    proto: Any = batch
    tensors = proto.batch if hasattr(proto, "non_tensor_batch") else proto
    names = list(speakers) if speakers is not None else agent_ids(proto.non_tensor_batch if tensors is not proto else proto)
    if names is None:
        raise SettingsError(f"add_role_ids: the batch has no {AGENT_ID!r}; give speakers=[...], the role of each row")
    if len(names) != len(proto):
        raise SettingsError(f"add_role_ids: {len(names)} names for {len(proto)} rows; give one for each row")
    if unknown := sorted(set(names) - set(roles)):
        raise SettingsError(f"add_role_ids: {', '.join(map(repr, unknown))} among the rows, but the roles are {', '.join(roles)}")
    tensors[ROLE_IDS] = index_names(names, roles)
    return batch


def index_names(names: Sequence[str], roles: Sequence[str]) -> Tensor:
    """The index (B,) of each name among the roles, int64, -1 where it is not among them."""
    places = {role: place for place, role in enumerate(roles)}
    return torch.tensor([places.get(name, NOBODY) for name in names], dtype=torch.int64)


def read_role_ids(batch: Any, roles: Sequence[str]) -> Tensor | None:
    """The role ids of a micro-batch: its `role_ids` (B,), or jagged (B, j) by token; else those of its `agent_id`; else None."""
    ids = batch.get(ROLE_IDS, None)
    if isinstance(ids, Tensor):
        return ids
    names = agent_ids(batch)
    return None if names is None else index_names(names, roles)


def agent_ids(batch: Any) -> list[str] | None:
    """The field `agent_id` of a batch's rows, or what an agent loop put under that name into their `extra_fields`."""
    names = _objects(batch.get(AGENT_ID, None))
    if names is not None:
        return [str(one) for one in names]
    extra = _objects(batch.get(EXTRA, None)) or []
    if not extra or not all(isinstance(one, Mapping) and AGENT_ID in one for one in extra):
        return None
    return [str(one[AGENT_ID]) for one in extra]


def trainer_step(batch: Any) -> int | None:
    """The step of the trainer that a batch belongs to, where it says so: the latest of its rows'."""
    held = batch.get("global_steps", None)
    held = getattr(held, "data", held) if not isinstance(held, Tensor) else held
    steps = [held] if isinstance(held, int) else _objects(held)
    return max((int(one) for one in steps), default=None) if steps else None


def _objects(field: Any) -> list[Any] | None:
    """The rows of a field of objects: a numpy array, a list, or tensordict's stack of them."""
    if field is None or isinstance(field, str):
        return None
    rows = field.tolist() if hasattr(field, "tolist") else field
    return list(rows) if isinstance(rows, Sequence) else None
