"""The contract of a detector, and the base of those that judge every series against itself.

A detector is pure: `update(state, block)` returns a new state and the findings that the block opened, extended or closed. What it
finds depends on the points and their order alone, never on where one block ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from gradwatch.schema import Block, Finding, Series


class Parameter(NamedTuple):
    """A number that a detector judges by: its default, unit, and where it comes from."""

    name: str
    default: float
    unit: str
    source: str


class Case(NamedTuple):
    """A curve and what the detector must say of it: `expected` lists (severity, start_step, end_step); none for a healthy one."""

    name: str
    metric: str
    values: tuple[float, ...]
    expected: tuple[tuple[str, int, int], ...] = ()
    stream: str = "train"


class Detector(Protocol):
    """What the watcher runs. `state` travels as bytes; `b""` is the state before the first point."""

    name: ClassVar[str]
    kind: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    HEALTHY: ClassVar[tuple[Case, ...]]
    SICK: ClassVar[tuple[Case, ...]]

    def reads(self, series: Series) -> bool:
        """Whether points of this series matter to the detector."""

    def load(self, state: bytes) -> Any:
        """The state that `dump` wrote; `b""` gives the state before the first point."""

    def dump(self, state: Any) -> bytes:
        """The state as bytes."""

    def update(self, state: Any, block: Block) -> tuple[Any, list[Finding]]:
        """Judge the block's points in their order; return the next state and every finding that they touched."""


class Episode(msgspec.Struct, frozen=True):
    """One stretch of trouble in one series; `facts` are the numbers that a message is made of."""

    number: int
    start: int
    end: int
    facts: dict[str, Any] = {}
    closed: bool = False


Memory = TypeVar("Memory", bound=msgspec.Struct)


class SeriesDetector(Generic[Memory]):
    """Runs one `Memory` a series. A subclass says what a point changes (`advance`) and what an episode means (`describe`)."""

    name: ClassVar[str]
    kind: ClassVar[str]
    memory: ClassVar[type[Any]]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    HEALTHY: ClassVar[tuple[Case, ...]] = ()
    SICK: ClassVar[tuple[Case, ...]] = ()

    def reads(self, series: Series) -> bool:
        raise NotImplementedError

    def advance(self, memory: Memory, series: Series, step: int, value: float) -> tuple[Memory, Episode | None]:
        """The memory after one point, and the episode that the point closed, if any."""
        raise NotImplementedError

    def open_episode(self, memory: Memory) -> Episode | None:
        """The episode that is under way."""
        raise NotImplementedError

    def describe(self, series: Series, episode: Episode) -> Finding:
        raise NotImplementedError

    def load(self, state: bytes) -> dict[Series, Memory]:
        if not state:
            return {}
        pairs = msgspec.msgpack.decode(state, type=list[tuple[Series, self.memory]])  # type: ignore[name-defined]
        return dict(pairs)

    def dump(self, state: dict[Series, Memory]) -> bytes:
        return msgspec.msgpack.encode(list(state.items()))

    def update(self, state: dict[Series, Memory], block: Block) -> tuple[dict[Series, Memory], list[Finding]]:
        watched = [self.reads(series) for series in block.series]
        if not any(watched):
            return state, []
        after = dict(state)
        findings: list[Finding] = []
        touched: dict[Series, None] = {}
        points = zip(block.index, block.step, block.value, strict=True)
        # Most points of a log are not watched, and compress passes over them without running any code of ours.
        for at, step, value in compress(points, map(watched.__getitem__, block.index)):
            series = block.series[at]
            memory = after.get(series)
            after[series], closed = self.advance(self.memory() if memory is None else memory, series, step, value)
            touched[series] = None
            if closed is not None:
                findings.append(self.describe(series, msgspec.structs.replace(closed, closed=True)))
        findings += self._under_way(after, touched)
        return after, findings

    def _under_way(self, state: dict[Series, Memory], touched: Iterable[Series]) -> list[Finding]:
        episodes = ((series, self.open_episode(state[series])) for series in touched)
        return [self.describe(series, episode) for series, episode in episodes if episode is not None]


def finding(detector: Any, series: Series, episode: Episode, severity: str, message: str, suggestion: str) -> Finding:
    """A finding on one series, its axes and evidence filled in."""
    return Finding(
        kind=detector.kind,
        detector=detector.name,
        severity=severity,
        metric=series.metric,
        source_key=series.source_key,
        stream=series.stream,
        attempt=series.attempt,
        role=series.role,
        agent=series.agent,
        policy=series.policy,
        scope=series.scope,
        stat=series.stat,
        rank=series.rank,
        start_step=episode.start,
        end_step=episode.end,
        message=message,
        suggestion=suggestion,
        episode=episode.number,
        closed=episode.closed,
        evidence=episode.facts,
    )


def where(series: Series) -> str:
    """A series as a message names it: its own key, and what of role, agent, policy, scope and attempt that does not say."""
    name = series.source_key or series.metric
    axes = {"role ": series.role, "agent ": series.agent, "policy ": series.policy, "in ": series.scope}
    extra = [f"{axis}{value}" for axis, value in axes.items() if value and value not in name]
    if series.attempt > 1:
        extra.append(f"attempt {series.attempt}")
    return f"{name} ({', '.join(extra)})" if extra else name
