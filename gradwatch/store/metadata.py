"""The metadata database: runs, their journal, findings and the watcher's state, on SQLAlchemy.

The engine is SQLite; the SQL holds for PostgreSQL as well.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from gradwatch.errors import StoreError
from gradwatch.schema import Attempt, Checkpoint, Event, Finding, RunInfo, StoredFinding
from gradwatch.store import journal
from gradwatch.store.base import WatchState
from gradwatch.store.json_text import to_json
from gradwatch.wire import OpenRun
from gradwatch_migrations import metadata as migrations


def sqlite_engine(path: Path | None) -> Engine:
    """An engine on a SQLite file, or on a database in memory that all threads share."""
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def open_metadata(path: Path | None) -> Metadata:
    """Open a SQLite file, or a database in memory, at the newest schema; StoreError where it cannot be used."""
    engine = sqlite_engine(path)
    try:
        migrations.upgrade(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(
            f"{path} cannot be opened as a metadata database: restore it from a backup or use another folder ({error})"
        ) from error
    except StoreError:
        engine.dispose()
        raise
    return Metadata(engine)


class Metadata:
    """Runs, findings and watch states in a migrated database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # A database in memory is one connection, and threads must not mix their transactions on it.
        self._owner = Lock()

    def put_run(self, run: RunInfo) -> None:
        """Create the run, or replace what is known of it."""
        texts = {"config": to_json(run.config), "roles": to_json(run.roles), "warnings": to_json(run.warnings)}
        values = msgspec.structs.asdict(run) | texts
        with self._transaction() as connection:
            connection.execute(_UPSERT_RUN, values)

    def runs(self, project: str | None = None, run: str | None = None) -> list[RunInfo]:
        """The runs of a project, or all, or the one with that id, the newest first."""
        with self._transaction() as connection:
            rows = connection.execute(_SELECT_RUNS, {"project": project, "run": run}).mappings().all()
        return [_to_run(dict(row)) for row in rows]

    def has_run(self, run: str) -> bool:
        """Whether `put_run` has created the run."""
        with self._transaction() as connection:
            return connection.execute(_SELECT_RUN_ID, {"run": run}).first() is not None

    def put_watch(self, run: str, state: WatchState, findings: Sequence[Finding]) -> None:
        """Commit the state and the findings in one transaction; see `Store.put_watch`."""
        now = time.time()
        detectors = msgspec.msgpack.encode(state.detectors)
        with self._transaction() as connection:
            connection.execute(_UPSERT_WATCH, {"run": run, "sequence": state.sequence, "detectors": detectors})
            if findings:
                connection.execute(_UPSERT_FINDING, [_finding_row(run, finding, now) for finding in findings])

    def watch(self, run: str) -> WatchState:
        """The state that was committed last, or the empty one."""
        with self._transaction() as connection:
            row = connection.execute(_SELECT_WATCH, {"run": run}).first()
        if row is None:
            return WatchState()
        return WatchState(row.sequence, msgspec.msgpack.decode(row.detectors, type=dict[str, bytes]))

    def findings(self, run: str) -> list[StoredFinding]:
        """The run's findings by attempt and start step, in the order in which they came."""
        with self._transaction() as connection:
            rows = connection.execute(_SELECT_FINDINGS, {"run": run}).mappings().all()
        return [_to_finding(dict(row)) for row in rows]

    def newest_attempts(self, run: str | None = None) -> dict[str, Attempt]:
        """The newest attempt of every run that has one, or of one run."""
        with self._transaction() as connection:
            return {one.run: one for one in journal.newest_attempts(connection, run)}

    def counts(self, run: str | None = None) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        """By run how many findings are (open or acknowledged, resolved), by severity and without false alarms."""
        with self._transaction() as connection:
            rows = connection.execute(_COUNT_FINDINGS, {"run": run, "false_alarm": False}).all()
        counted: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        for row in rows:
            counted.setdefault(row.run, ({}, {}))[row.is_over][row.severity] = row.findings
        return counted

    def open_attempt(self, request: OpenRun) -> Attempt:
        """The attempt of a process; see `Journal.open_attempt`."""
        with self._transaction() as connection:
            return journal.open_attempt(connection, request)

    def attempt_of(self, run: str, process: str) -> int:
        """The attempt that a process has opened; see `Journal.attempt_of`."""
        with self._transaction() as connection:
            return journal.attempt_of(connection, run, process)

    def end_process(self, run: str, process: str, status: str) -> None:
        """The process has ended; see `Journal.end_process`."""
        with self._transaction() as connection:
            journal.end_process(connection, run, process, status)

    def attempts(self, run: str) -> list[Attempt]:
        """The run's attempts by number."""
        with self._transaction() as connection:
            return journal.attempts(connection, run)

    def put_checkpoints(self, run: str, checkpoints: Sequence[Checkpoint]) -> None:
        """Keep checkpoints."""
        with self._transaction() as connection:
            journal.put_checkpoints(connection, run, checkpoints)

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The run's checkpoints by attempt and step."""
        with self._transaction() as connection:
            return journal.checkpoints(connection, run)

    def put_events(self, run: str, events: Sequence[Event]) -> None:
        """Keep events."""
        with self._transaction() as connection:
            journal.put_events(connection, run, events)

    def events(self, run: str) -> list[Event]:
        """The run's events by wall time."""
        with self._transaction() as connection:
            return journal.events(connection, run)

    def close(self) -> None:
        """Release the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._owner, self._engine.begin() as connection:
            yield connection


_UPSERT_RUN = text("""
INSERT INTO runs (id, name, project, source, format, rows, created, config, roles, warnings)
VALUES (:id, :name, :project, :source, :format, :rows, :created, :config, :roles, :warnings)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name,
    project = excluded.project,
    source = excluded.source,
    format = excluded.format,
    rows = excluded.rows,
    created = excluded.created,
    config = excluded.config,
    roles = excluded.roles,
    warnings = excluded.warnings
""")

_SELECT_RUNS = text("""
SELECT id, name, project, source, format, rows, created, config, roles, warnings
FROM runs
WHERE project = coalesce(:project, project) AND id = coalesce(:run, id)
ORDER BY created DESC, id DESC
""")

_SELECT_RUN_ID = text("SELECT id FROM runs WHERE id = :run")

_UPSERT_WATCH = text("""
INSERT INTO watch_state (run, sequence, detectors)
VALUES (:run, :sequence, :detectors)
ON CONFLICT (run) DO UPDATE SET sequence = excluded.sequence, detectors = excluded.detectors
""")

# A closed episode is resolved, whether somebody acknowledged it or not; everything else that people set stays.
_UPSERT_FINDING = text("""
INSERT INTO findings (
    id, run, fingerprint, attempt, start_step, severity, finding, status, created, updated, silenced_until, false_alarm
)
VALUES (:id, :run, :fingerprint, :attempt, :start_step, :severity, :finding, :status, :now, :now, NULL, :false_alarm)
ON CONFLICT (run, fingerprint) DO UPDATE SET
    start_step = excluded.start_step,
    severity = excluded.severity,
    finding = excluded.finding,
    status = CASE WHEN excluded.status = 'resolved' THEN 'resolved' ELSE findings.status END,
    updated = CASE WHEN excluded.finding = findings.finding THEN findings.updated ELSE excluded.updated END
""")

_SELECT_WATCH = text("SELECT sequence, detectors FROM watch_state WHERE run = :run")

_SELECT_FINDINGS = text("""
SELECT id, run, finding, status, created, updated, silenced_until, false_alarm
FROM findings
WHERE run = :run
ORDER BY attempt, start_step, created, fingerprint
""")

_COUNT_FINDINGS = text("""
SELECT run, severity, CASE WHEN status = 'resolved' THEN 1 ELSE 0 END AS is_over, count(*) AS findings
FROM findings
WHERE run = coalesce(:run, run) AND false_alarm = :false_alarm
GROUP BY run, severity, CASE WHEN status = 'resolved' THEN 1 ELSE 0 END
""")


def _configure(connection: Any, _record: object) -> None:
    # Python's sqlite3 would commit before a schema change; without its help a migration is one transaction.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _finding_row(run: str, finding: Finding, now: float) -> dict[str, Any]:
    fingerprint = finding.fingerprint()
    return {
        "id": hashlib.sha256(f"{run}\x1f{fingerprint}".encode()).hexdigest()[:16],
        "run": run,
        "fingerprint": fingerprint,
        "attempt": finding.attempt,
        "start_step": finding.start_step,
        "severity": finding.severity,
        "finding": to_json(finding),
        "status": "resolved" if finding.closed else "open",
        "now": now,
        "false_alarm": False,
    }


def _to_run(row: dict[str, Any]) -> RunInfo:
    row |= {name: json.loads(row[name]) for name in ("config", "roles", "warnings")}
    return msgspec.convert(row, RunInfo)


def _to_finding(row: dict[str, Any]) -> StoredFinding:
    row["finding"] = json.loads(row["finding"])
    row["false_alarm"] = bool(row["false_alarm"])
    return msgspec.convert(row, StoredFinding)
