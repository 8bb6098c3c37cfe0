"""The store of one machine: points in DuckDB, the rest in SQLite, both in one folder or both in memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from gradwatch.errors import StoreError
from gradwatch.schema import (
    FINISHED,
    Attempt,
    Block,
    Checkpoint,
    Curve,
    Event,
    Finding,
    Point,
    RunInfo,
    RunState,
    Sample,
    Selection,
    Series,
    Span,
    StoredFinding,
    Trace,
)
from gradwatch.store.base import ALL, Append, Appended, WatchState
from gradwatch.store.duckdb import PointStore, connect
from gradwatch.store.export import export_points
from gradwatch.store.metadata import Metadata, open_metadata
from gradwatch.store.point_queries import Reached
from gradwatch.wire import OpenRun

POINTS_FILE = "points.duckdb"
METADATA_FILE = "metadata.sqlite"


class LocalStore:
    """A `Store` and a `Query`, with exports, on a point store and a metadata database; safe to use from several threads."""

    def __init__(self, points: PointStore, metadata: Metadata, release: Callable[[], None] = lambda: None) -> None:
        self._points = points
        self._metadata = metadata
        self._release = release
        self._known: set[str] = set()
        self._closed = False

    def put_run(self, run: RunInfo) -> None:
        """Create the run, or replace what is known of it."""
        self._metadata.put_run(run)

    def runs(self, project: str | None = None) -> list[RunInfo]:
        """All runs, or those of a project, the newest first."""
        return self._metadata.runs(project)

    def info(self, run: str) -> RunInfo | None:
        """What is known of one run; None where there is no such run."""
        return next(iter(self._metadata.runs(run=run)), None)

    def states(self, project: str | None = None) -> list[RunState]:
        """Every run as it stands, or those of a project, the newest first."""
        return self._states(self._metadata.runs(project))

    def state(self, run: str) -> RunState:
        """One run as it stands."""
        self._require(run)
        return self._states(self._metadata.runs(run=run), run)[0]

    def _states(self, runs: list[RunInfo], run: str | None = None) -> list[RunState]:
        attempts, counts = self._metadata.newest_attempts(run), self._metadata.counts(run)
        reached = self._points.reached(run)
        return [_state(one, attempts.get(one.id), reached.get(one.id), *counts.get(one.id, ({}, {}))) for one in runs]

    def open_attempt(self, request: OpenRun) -> Attempt:
        """The attempt of a process of an existing run, joined or opened."""
        self._require(request.id)
        return self._metadata.open_attempt(request)

    def attempt_of(self, run: str, process: str) -> int:
        """The attempt that the process has opened; the newest one for "" or an unknown process, 1 where there is none."""
        self._require(run)
        return self._metadata.attempt_of(run, process)

    def end_process(self, run: str, process: str, status: str) -> None:
        """The process has ended, and its attempt with the last one."""
        self._require(run)
        self._metadata.end_process(run, process, status)

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts, the first one first."""
        self._require(run)
        return self._metadata.attempts(run)

    def put_checkpoints(self, run: str, checkpoints: Sequence[Checkpoint]) -> None:
        """Keep checkpoints; one that is known is replaced."""
        self._require(run)
        self._metadata.put_checkpoints(run, checkpoints)

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""
        self._require(run)
        return self._metadata.checkpoints(run)

    def put_events(self, run: str, events: Sequence[Event]) -> None:
        """Keep events; one that is known is passed over."""
        self._require(run)
        self._metadata.put_events(run, events)

    def events(self, run: str) -> list[Event]:
        """What happened to the run, by wall time."""
        self._require(run)
        return self._metadata.events(run)

    def append(self, run: str, points: Block | Iterable[Block], samples: Sequence[Sample] = (), batch_id: str | None = None) -> int:
        """Durably add points and samples in one transaction; return the run's last sequence number."""
        self._require(run)
        return self._points.append(run, points, samples, batch_id)

    def append_group(self, appends: Sequence[Append]) -> list[Appended]:
        """Durably add many appends, of any runs, in one transaction; one whose batch id is known adds nothing."""
        for run in {one.run for one in appends}:
            self._require(run)
        return self._points.append_group(appends)

    def replay(self, run: str, after: int = 0, size: int = 50_000) -> Iterator[tuple[int, Block]]:
        """The run's points in sequence order, rewrites included, as (last sequence number, block)."""
        self._require(run)
        return self._points.replay(run, after, size)

    def curves(self, run: str, selection: Selection = ALL) -> list[Curve]:
        """The selected series, each with the last write of every step."""
        self._require(run)
        return self._points.curves(run, selection)

    def latest(self, run: str, attempt: int) -> list[Point]:
        """The last write of the highest step of every series of an attempt."""
        self._require(run)
        return self._points.latest(run, attempt)

    def count(self, run: str, attempt: int) -> int:
        """How many points an attempt has, rewrites included."""
        self._require(run)
        return self._points.count(run, attempt)

    def spans(self, run: str) -> list[Span]:
        """The run's series with their first and last step, without reading their values."""
        self._require(run)
        return self._points.spans(run)

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted ones of the run's series as arrays, one at a time, so that no more than one need be in memory."""
        self._require(run)
        return self._points.traces(run, wanted)

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The run's samples, by step and in the order in which they came; the first `limit`."""
        self._require(run)
        return self._points.samples(run, step, role, limit, attempt)

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""
        self._require(run)
        return self._points.sample_steps(run, role)

    def put_watch(self, run: str, state: WatchState, findings: Sequence[Finding]) -> None:
        """Commit detector state and the findings it led to together."""
        self._require(run)
        self._metadata.put_watch(run, state, findings)

    def watch(self, run: str) -> WatchState:
        """What `put_watch` committed last, or the empty state."""
        self._require(run)
        return self._metadata.watch(run)

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step."""
        self._require(run)
        return self._metadata.findings(run)

    def export(self, run: str, path: Path) -> int:
        """Write the run's points to a .parquet or .csv file, atomically; return their number."""
        self._require(run)
        return export_points((block for _, block in self._points.replay(run)), path)

    def checkpoint(self) -> None:
        """Move the point store's log into its file, which stalls appends for a moment."""
        self._points.checkpoint()

    def close(self) -> None:
        """Release every resource; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._points.close()
        self._metadata.close()
        self._release()

    def _require(self, run: str) -> None:
        # Runs are never removed, so one look into the database is enough for each.
        if run in self._known:
            return
        if not self._metadata.has_run(run):
            raise StoreError(f"the store has no run {run!r}: create it with put_run first, or take an id from runs()")
        self._known.add(run)


def _state(
    info: RunInfo, attempt: Attempt | None, reached: Reached | None, findings: dict[str, int], resolved: dict[str, int]
) -> RunState:
    at = Reached(0, 1, None, 0.0) if reached is None else reached
    return RunState(
        info=info,
        attempt=at.attempt if attempt is None else attempt.number,
        status=FINISHED if attempt is None else attempt.status,
        last_step=at.last_step,
        last_update=at.committed,
        sequence=at.sequence,
        findings=findings,
        resolved=resolved,
    )


def open_local(path: Path | None, memory_mb: int | None = None) -> LocalStore:
    """Open the store in a folder, created if missing, or a new one in memory; see `open_store`."""
    if path is None:
        return LocalStore(PointStore(connect(None, memory_mb=memory_mb)), open_metadata(None))
    folder = _folder(path)
    _claim(folder)
    try:
        return _open_folder(folder, memory_mb)
    except StoreError:
        _claims.discard(folder)
        raise


def _open_folder(folder: Path, memory_mb: int | None) -> LocalStore:
    # Points first: DuckDB's lock on the file keeps other processes away from both databases.
    points = _open_points(folder / POINTS_FILE, memory_mb)
    try:
        metadata = open_metadata(folder / METADATA_FILE)
    except StoreError:
        points.close()
        raise
    return LocalStore(points, metadata, release=lambda: _claims.discard(folder))


def _open_points(path: Path, memory_mb: int | None) -> PointStore:
    database = connect(path, memory_mb=memory_mb)
    try:
        return PointStore(database)
    except StoreError:
        database.close()
        raise


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{path} is not a folder: name a folder for the store's files") from error
    except OSError as error:
        raise StoreError(f"cannot create the store's folder {path}: name one that can be written ({error})") from error
    return path.resolve()


_claims: set[Path] = set()
_claims_owner = Lock()


def _claim(folder: Path) -> None:
    # Within one process DuckDB opens a file twice without complaint, and two stores would number points alike.
    with _claims_owner:
        if folder in _claims:
            raise StoreError(f"the store in {folder} is already open in this process: share it, or close it first")
        _claims.add(folder)
