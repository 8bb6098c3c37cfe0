"""A process announces itself: its run is created, joined or resumed. Runs on the writer's thread."""

from __future__ import annotations

import msgspec

from gradwatch.collector.stamping import is_time
from gradwatch.errors import RefusedError
from gradwatch.schema import Attempt, Event, RunInfo
from gradwatch.store.local import LocalStore
from gradwatch.wire import MUST, NEVER, Opened, OpenRun


def open_run(store: LocalStore, request: OpenRun, now: float) -> Opened:
    """Create the run or join it, as the request says; RefusedError where the request forbids that."""
    request = request if is_time(request.started) else msgspec.structs.replace(request, started=now)
    info = store.info(request.id)
    if info is None and request.resume == MUST:
        raise RefusedError(
            f"run {request.id!r} does not exist, and resume='must' asks for it: check the id, or allow a new run", 404
        )
    known = info is not None and _is_known(store, request)
    if info is not None and request.resume == NEVER and not known:
        raise RefusedError(f"run {request.id!r} exists, and resume='never' forbids to join it: choose another id, or allow it", 409)
    info = _put_run(store, request, info)
    before = store.attempts(request.id)
    attempt = store.open_attempt(request)
    if not known or attempt not in before:
        _note(store, request, attempt, before)
    points = store.count(request.id, attempt.number) if before else 0
    return Opened(run=info.id, name=info.name, attempt=attempt.number, created=not before, points=points)


def _is_known(store: LocalStore, request: OpenRun) -> bool:
    """Whether the process, or one of its launch, has opened the run before."""
    facts = [one.facts for one in store.events(request.id) if one.kind in _KINDS]
    return any(one.get("process") == request.process or (request.launch and one.get("launch") == request.launch) for one in facts)


def _put_run(store: LocalStore, request: OpenRun, info: RunInfo | None) -> RunInfo:
    """The run as it is now: an existing one keeps its name, project and time, and learns a configuration that it lacked."""
    if info is None:
        wanted = RunInfo(
            id=request.id,
            name=request.name or request.id,
            project=request.project or "default",
            source=request.source,
            format=request.format,
            created=request.started,
            config=request.config,
            roles=request.roles,
        )
    else:
        wanted = msgspec.structs.replace(info, config=info.config or request.config, roles=info.roles or request.roles)
    if wanted != info:
        store.put_run(wanted)
    return wanted


OPENED, RESUMED, JOINED = _KINDS = ("opened", "resumed", "joined")


def _note(store: LocalStore, request: OpenRun, attempt: Attempt, before: list[Attempt]) -> None:
    kind = OPENED if not before else RESUMED if all(one.number != attempt.number for one in before) else JOINED
    who = f"process {request.process}" if request.rank is None else f"rank {request.rank} (process {request.process})"
    facts = {"process": request.process, "launch": request.launch, "rank": request.rank}
    message = f"{who} {kind} the run" if kind == OPENED else f"{who} {kind} the run in attempt {attempt.number}"
    event = Event(kind=kind, message=message, attempt=attempt.number, wall_time=request.started, facts=facts)
    store.put_events(request.id, [event])
