"""Reads for the pages: off the event loop, and each answer shared by all who look at the same thing.

Five viewers of a run cost one query: within `FRESH` seconds all see the same state of it, and what was read for a state is kept
until the run has moved on.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from gradwatch.checkpoints.selection import Pick
from gradwatch.client.query import Query
from gradwatch.schema import Attempt, Checkpoint, Curve, Event, RunState, Sample, Selection, Span, StoredFinding

FRESH = 0.2
KEPT = 64
"""Samples that are looked through for the steps that have some."""

T = TypeVar("T")

Choose = Callable[[str], Pick]


class _Answer(NamedTuple):
    stamp: Hashable
    at: float
    task: asyncio.Task[Any]


class Shared:
    """The newest answer to each question; an answer is asked for once, however many wait for it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    async def get(self, question: Hashable, stamp: Hashable, read: Callable[[], T]) -> T:
        """The answer for `stamp`, read in a thread where it is not known; a stamp of None is good for `FRESH` seconds."""
        known = self._answers.get(question)
        if known is None or not _holds(known, stamp):
            known = _Answer(stamp, time.monotonic(), asyncio.create_task(asyncio.to_thread(read)))
            self._answers[question] = known
        self._answers.move_to_end(question)
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)
        # Shielded: a viewer who leaves must not cancel the read that others wait for.
        answer: T = await asyncio.shield(known.task)
        return answer


def _holds(known: _Answer, stamp: Hashable) -> bool:
    if known.task.done() and (known.task.cancelled() or known.task.exception() is not None):
        return False
    return time.monotonic() - known.at < FRESH if stamp is None else known.stamp == stamp


class Reader:
    """Every read that the pages need; StoreError or RefusedError as `Query` raises them.

    What is asked with a `RunState` is as new as that state, or newer.
    """

    def __init__(self, query: Query, choose: Choose | None = None) -> None:
        self._query = query
        self._choose = choose
        self.shared = Shared()

    async def states(self) -> list[RunState]:
        """Every run as it stands, the newest first."""
        return await self.shared.get("states", None, self._query.states)

    async def state(self, run: str) -> RunState:
        """One run as it stands."""
        return await self.shared.get(("state", run), None, lambda: self._query.state(run))

    async def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""
        return await self.shared.get(("findings", run), None, lambda: self._query.findings(run))

    async def attempts(self, state: RunState) -> list[Attempt]:
        """The run's attempts, the first one first."""
        run = state.info.id
        return await self.shared.get(("attempts", run), (state.attempt, state.status), lambda: self._query.attempts(run))

    async def spans(self, state: RunState) -> list[Span]:
        """The run's series with their first and last step."""
        run = state.info.id
        return await self.shared.get(("spans", run), state.sequence, lambda: self._query.spans(run))

    async def curves(self, state: RunState, selection: Selection) -> list[Curve]:
        """The selected series."""
        run = state.info.id
        return await self.shared.get(("curves", run, selection), state.sequence, lambda: self._query.curves(run, selection))

    async def samples(self, state: RunState, step: int | None, role: str | None, limit: int, attempt: int) -> list[Sample]:
        """The first `limit` samples of a step and role (None: of all) in an attempt."""
        run = state.info.id
        question = ("samples", run, step, role, limit, attempt)
        return await self.shared.get(question, moved(state), lambda: self._query.samples(run, step, role, limit, attempt))

    async def sampled_steps(self, state: RunState, role: str | None) -> list[int]:
        """The steps that have samples, of a role (None: of any)."""
        run = state.info.id
        return await self.shared.get(("sampled steps", run, role), moved(state), lambda: self._query.sample_steps(run, role))

    async def checkpoints(self, state: RunState) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""
        run = state.info.id
        return await self.shared.get(("checkpoints", run), moved(state), lambda: self._query.checkpoints(run))

    async def events(self, state: RunState) -> list[Event]:
        """What happened to the run, in order."""
        run = state.info.id
        return await self.shared.get(("events", run), moved(state), lambda: self._query.events(run))

    async def pick(self, state: RunState) -> Pick:
        """What is worth keeping, nothing where nobody was named who could say; as new as the state within a hundredth."""
        run, choose = state.info.id, self._choose
        if choose is None:
            return Pick(None, None, None)
        return await self.shared.get(("pick", run), _hundredth(state), lambda: choose(run))


def moved(state: RunState) -> tuple[int, float]:
    """What changes with every commit to the run, be it points, samples or checkpoints."""
    return state.sequence, state.last_update


def _hundredth(state: RunState) -> tuple[str, int]:
    # The choice reads whole curves, and a hundredth more of a run hardly moves it: asked anew for each, and once at the end.
    size = state.sequence
    return state.status, size if size < 1000 else size // (10 ** (len(str(size)) - 3))


def newest_update(findings: Sequence[StoredFinding]) -> tuple[int, float]:
    """What changes whenever a finding is added or goes on."""
    return len(findings), max((one.updated for one in findings), default=0.0)
