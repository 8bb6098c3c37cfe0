"""What a call to a run leaves in its queue: a copy of what was given, read later by the background thread."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gradwatch.client.rollouts import Row
from gradwatch.schema import Event


class Context(NamedTuple):
    """What a call says of all its metrics; an empty axis is read from each key."""

    role: str = ""
    agent: str = ""
    policy: str = ""
    scope: str = ""
    stream: str = ""


NO_CONTEXT = Context()


class Metrics(msgspec.Struct, frozen=True):
    """One call of `log`. `waits` are device events after which the copied tensors may be read; `step` None asks for the next.

    `step` may be a copied tensor.
    """

    values: dict[str, Any]
    step: Any
    wall_time: float
    context: Context
    waits: tuple[Any, ...]
    weight: int


class Samples(NamedTuple):
    """One call of `log_samples`; a sample's own step comes before the call's."""

    rows: list[Row]
    step: int | None
    weight: int


class Saved(NamedTuple):
    """One call of `log_checkpoint`."""

    uri: str
    step: int | None
    policy: str
    metrics: dict[str, Any]
    waits: tuple[Any, ...]
    wall_time: float
    weight: int = 1


class Happened(NamedTuple):
    """One event."""

    event: Event
    weight: int = 1


Record = Metrics | Samples | Saved | Happened
