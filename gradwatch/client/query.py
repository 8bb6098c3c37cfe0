"""What can be asked about runs, whoever keeps them: a collector over HTTP, or a store in the same process."""

from __future__ import annotations

from typing import Protocol

from gradwatch.schema import Attempt, Checkpoint, Curve, Event, RunState, Sample, Selection, Span, StoredFinding


class Query(Protocol):
    """Reads only. Every method but `states` raises StoreError (or RefusedError 404 over HTTP) for an unknown run."""

    def states(self, project: str | None = None) -> list[RunState]:
        """Every run as it stands, the newest first."""

    def state(self, run: str) -> RunState:
        """One run as it stands."""

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts, the first one first."""

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step."""

    def curves(self, run: str, selection: Selection = ...) -> list[Curve]:
        """The selected series, each with the last write of every step."""

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The samples of a step, role and attempt (None: of all), by step and in the order of their arrival; the first `limit`."""

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""

    def events(self, run: str) -> list[Event]:
        """What happened to the run, in order."""
