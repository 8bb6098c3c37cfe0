"""Attempts, processes, checkpoints and events in the metadata database; each function runs in its caller's transaction."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Row, text

from gradwatch.schema import RUNNING, STATUSES, Attempt, Checkpoint, Event
from gradwatch.store.json_text import to_json
from gradwatch.wire import OpenRun


def open_attempt(connection: Connection, request: OpenRun) -> Attempt:
    """The attempt that the process belongs to, opened if need be; see `OpenRun`."""
    about = {"run": request.id, "process": request.process, "launch": request.launch, "rank": request.rank}
    number = _number(connection.execute(_SELECT_OWN_ATTEMPT, about).first())
    if number is None:
        number = _number(connection.execute(_SELECT_LAUNCH_ATTEMPT, about).first()) if request.launch else None
        taken = number is not None and request.rank is not None and _has_rank(connection, about | {"attempt": number})
        opener = number is None or taken
        if number is None or taken:
            number = _open_next(connection, request)
        connection.execute(_INSERT_PROCESS, about | {"attempt": number, "status": RUNNING, "opener": opener})
        # An attempt that had ended goes on with its new process.
        connection.execute(_REOPEN_ATTEMPT, about | {"attempt": number, "status": RUNNING})
    return next(one for one in attempts(connection, request.id) if one.number == number)


def _has_rank(connection: Connection, about: Mapping[str, object]) -> bool:
    return connection.execute(_SELECT_RANK, about).first() is not None


def _open_next(connection: Connection, request: OpenRun) -> int:
    started = request.started or time.time()
    # Whatever still counts as running has died without a word, or will say how it ended.
    connection.execute(_SUPERSEDE_ATTEMPTS, {"run": request.id, "ended": started})
    number = attempt_of(connection, request.id, "", none=0) + 1
    values = {"run": request.id, "number": number, "launch": request.launch, "status": RUNNING, "started": started}
    connection.execute(_INSERT_ATTEMPT, values)
    return number


def attempt_of(connection: Connection, run: str, process: str, none: int = 1) -> int:
    """The process's attempt, else the newest one, else `none`."""
    own = _number(connection.execute(_SELECT_OWN_ATTEMPT, {"run": run, "process": process}).first())
    newest = own or _number(connection.execute(_SELECT_NEWEST_ATTEMPT, {"run": run}).first())
    return newest or none


def end_process(connection: Connection, run: str, process: str, status: str) -> None:
    """End the process (none named: every one of the newest attempt), and its attempt with the process that opened it.

    Workers may die without a word, so they do not keep an attempt running; one that says how it ended still counts.
    """
    about = {"run": run, "process": process, "status": status, "attempt": attempt_of(connection, run, process)}
    connection.execute(_END_PROCESS, about)
    rows = connection.execute(_SELECT_PROCESSES, about).all()
    running = [row for row in rows if row.status == RUNNING]
    if not running or not any(row.opener for row in running):
        ends = {str(row.status) for row in rows if row.status != RUNNING} or {status}
        connection.execute(_END_ATTEMPT, about | {"status": max(ends, key=STATUSES.index), "ended": time.time()})


def attempts(connection: Connection, run: str) -> list[Attempt]:
    """The run's attempts by number."""
    rows = connection.execute(_SELECT_ATTEMPTS, {"run": run}).mappings().all()
    return [Attempt(**row) for row in rows]


def newest_attempts(connection: Connection, run: str | None) -> list[Attempt]:
    """The newest attempt of each run that has one, or of one run."""
    rows = connection.execute(_SELECT_NEWEST_ATTEMPTS, {"run": run}).mappings().all()
    return [Attempt(**row) for row in rows]


def put_checkpoints(connection: Connection, run: str, checkpoints: Sequence[Checkpoint]) -> None:
    """Keep the checkpoints."""
    if checkpoints:
        rows = [_row(run, one) | {"metrics": to_json(one.metrics), "uri": one.uri, "policy": one.policy} for one in checkpoints]
        connection.execute(_UPSERT_CHECKPOINT, rows)


def checkpoints(connection: Connection, run: str) -> list[Checkpoint]:
    """The run's checkpoints by attempt and step."""
    rows = connection.execute(_SELECT_CHECKPOINTS, {"run": run}).mappings().all()
    return [Checkpoint(**{**row, "metrics": json.loads(row["metrics"])}) for row in rows]


def put_events(connection: Connection, run: str, events: Sequence[Event]) -> None:
    """Keep the events; one that is known is passed over."""
    rows = [_row(run, one) | {"kind": one.kind, "message": one.message, "facts": to_json(one.facts)} for one in events]
    for row in rows:
        row["id"] = hashlib.sha256(to_json(row).encode()).hexdigest()[:24]
    if rows:
        connection.execute(_INSERT_EVENT, rows)


def events(connection: Connection, run: str) -> list[Event]:
    """The run's events by wall time."""
    rows = connection.execute(_SELECT_EVENTS, {"run": run}).mappings().all()
    return [Event(**{**row, "facts": json.loads(row["facts"])}) for row in rows]


def _row(run: str, one: Checkpoint | Event) -> dict[str, object]:
    return {"run": run, "attempt": one.attempt, "step": one.step, "wall_time": one.wall_time}


def _number(row: Row[tuple[object, ...]] | None) -> int | None:
    return None if row is None or row[0] is None else int(str(row[0]))


_SELECT_OWN_ATTEMPT = text("SELECT attempt FROM processes WHERE run = :run AND process = :process")

_SELECT_LAUNCH_ATTEMPT = text("SELECT max(number) FROM attempts WHERE run = :run AND launch = :launch")

_SELECT_NEWEST_ATTEMPT = text("SELECT max(number) FROM attempts WHERE run = :run")

_SELECT_RANK = text("SELECT 1 FROM processes WHERE run = :run AND attempt = :attempt AND rank = :rank")

_INSERT_PROCESS = text("""
INSERT INTO processes (run, process, attempt, rank, opener, status)
VALUES (:run, :process, :attempt, :rank, :opener, :status)
""")

_REOPEN_ATTEMPT = text("UPDATE attempts SET status = :status, ended = NULL WHERE run = :run AND number = :attempt")

_SUPERSEDE_ATTEMPTS = text("""
UPDATE attempts SET status = 'interrupted', ended = :ended
WHERE run = :run AND status = 'running'
""")

_INSERT_ATTEMPT = text("""
INSERT INTO attempts (run, number, launch, status, started, ended)
VALUES (:run, :number, :launch, :status, :started, NULL)
""")

_END_PROCESS = text("""
UPDATE processes SET status = :status
WHERE run = :run AND attempt = :attempt AND (process = :process OR :process = '')
""")

_SELECT_PROCESSES = text("SELECT status, opener FROM processes WHERE run = :run AND attempt = :attempt")

_END_ATTEMPT = text("UPDATE attempts SET status = :status, ended = :ended WHERE run = :run AND number = :attempt")

_SELECT_ATTEMPTS = text("SELECT run, number, status, started, ended FROM attempts WHERE run = :run ORDER BY number")

_SELECT_NEWEST_ATTEMPTS = text("""
SELECT run, number, status, started, ended
FROM attempts
WHERE run = coalesce(:run, run) AND number = (SELECT max(number) FROM attempts AS others WHERE others.run = attempts.run)
""")

_UPSERT_CHECKPOINT = text("""
INSERT INTO checkpoints (run, attempt, step, policy, uri, metrics, wall_time)
VALUES (:run, :attempt, :step, :policy, :uri, :metrics, :wall_time)
ON CONFLICT (run, attempt, step, policy, uri) DO UPDATE SET metrics = excluded.metrics, wall_time = excluded.wall_time
""")

_SELECT_CHECKPOINTS = text("""
SELECT step, uri, attempt, policy, metrics, wall_time
FROM checkpoints
WHERE run = :run
ORDER BY attempt, step, wall_time, policy, uri
""")

_INSERT_EVENT = text("""
INSERT INTO events (id, run, kind, message, attempt, step, wall_time, facts)
VALUES (:id, :run, :kind, :message, :attempt, :step, :wall_time, :facts)
ON CONFLICT (id) DO NOTHING
""")

_SELECT_EVENTS = text("""
SELECT kind, message, attempt, step, wall_time, facts
FROM events
WHERE run = :run
ORDER BY wall_time, id
""")
