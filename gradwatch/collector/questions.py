"""What can be asked of a collector in the same process: its store's answers, and the findings as the watcher left them."""

from __future__ import annotations

from collections.abc import Container, Iterator

from gradwatch.checkpoints.selection import best_of_run
from gradwatch.schema import (
    Attempt,
    BestStep,
    Block,
    Checkpoint,
    Curve,
    Event,
    RunState,
    Sample,
    Selection,
    Series,
    Span,
    StoredFinding,
    Trace,
)
from gradwatch.store.base import ALL
from gradwatch.store.local import LocalStore


class Questions:
    """A `Query` on a store, which several threads may ask at once. All but `states` raise StoreError for an unknown run."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def states(self, project: str | None = None) -> list[RunState]:
        """Every run as it stands, the newest first."""
        return self._store.states(project)

    def state(self, run: str) -> RunState:
        """One run as it stands."""
        return self._store.state(run)

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts, the first one first."""
        return self._store.attempts(run)

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step."""
        return self._store.spans(run)

    def curves(self, run: str, selection: Selection = ALL) -> list[Curve]:
        """The selected series, each with the last write of every step."""
        return self._store.curves(run, selection)

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series as arrays, one by one."""
        return self._store.traces(run, wanted)

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The samples of a step, role and attempt (None: of all), by step and in the order of their arrival; the first `limit`."""
        return self._store.samples(run, step, role, limit, attempt)

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""
        return self._store.sample_steps(run, role)

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""
        return self._store.checkpoints(run)

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""
        return self._store.findings(run)

    def events(self, run: str) -> list[Event]:
        """What happened to the run, in order."""
        return self._store.events(run)

    def best(self, run: str) -> BestStep | None:
        """The step worth keeping, or None where nothing says which is better."""
        return best_of_run(self, run)

    def replay(self, run: str) -> Iterator[tuple[int, Block]]:
        """The run's points in the order in which they were committed, rewrites included, as (last sequence number, block)."""
        return self._store.replay(run)

    def tail(self, run: str, after: int, limit: int) -> tuple[int, Block]:
        """The first `limit` points after a sequence number, and the sequence number to go on with."""
        return next(self._store.replay(run, after, limit), (after, Block()))
