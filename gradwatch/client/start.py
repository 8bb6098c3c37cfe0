"""Opens a run: settings are checked before the first step, and nothing waits for the network unless the answer is asked for."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as replace_setting
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gradwatch.client import lifecycle
from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.identity import Identity, identify, new_run_id, parent_pid
from gradwatch.client.notices import Notices
from gradwatch.client.run import Run
from gradwatch.client.shared import Shared
from gradwatch.client.text import clean, cut, plain
from gradwatch.client.transport import Transport
from gradwatch.client.worker import Worker
from gradwatch.errors import GradwatchError, SettingsError
from gradwatch.schema import NO_RANK
from gradwatch.settings import DISABLED, INPROCESS, OFFLINE, ONLINE, Settings
from gradwatch.wire import ALLOW, RESUMES, OpenRun

_OPENED: Counter[str] = Counter()
"""How often this process has opened each run: opening it again after `finish` is another attempt."""
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Plan:
    """How each process of a run takes part: the one that called `init`, and each of its forked children."""

    def __init__(self, asked: OpenRun, settings: Settings, in_process: Callable[[Path], Transport], notices: Notices) -> None:
        self._asked = asked
        # The user may change the working directory later.
        self._settings = replace_setting(settings, dir=settings.dir.absolute())
        self._notices = notices
        self._pid = os.getpid()
        _OPENED[asked.id] += 1
        self._identity = identify(os.environ, settings.launch, _OPENED[asked.id])
        self._transport: Transport | None = Shared(settings.data, in_process) if settings.mode == INPROCESS else None

    @property
    def is_spokesman(self) -> bool:
        """Whether this process speaks for its job: its first rank, and no helper that another process started."""
        return self._identity.point_rank == NO_RANK and parent_pid() is None

    def check(self) -> None:
        """Ask the collector now whether the run may be opened: RefusedError, or UnavailableError, where it may not."""
        transport = self._connect()
        try:
            transport.open(self._request(self._identity))
        except GradwatchError:
            transport.close()
            raise

    def worker(self) -> Worker:
        """The worker of this process."""
        forked = os.getpid() != self._pid
        if forked:
            self._identity = identify(os.environ, self._identity.launch)._replace(rank=None)
            self._pid, self._transport = os.getpid(), None
        mode = OFFLINE if forked and self._settings.mode == INPROCESS else self._settings.mode
        page = self._settings.url if mode == ONLINE else ""
        connect = None if mode == OFFLINE else self._connect
        return Worker(self._request(self._identity), self._identity, self._settings, connect, self._notices, page)

    def _connect(self) -> Transport:
        return self._transport or HttpTransport(self._settings.url, self._settings.api_key)

    def prepare(self) -> None:
        """Load what the background thread will need: a module that is half loaded when the user forks stays so in the child."""
        if self._settings.mode == ONLINE:
            self._transport = self._connect()

    def _request(self, identity: Identity) -> OpenRun:
        return replace(self._asked, process=identity.process, launch=identity.launch, rank=identity.rank)


def start(
    settings: Settings,
    name: str | None,
    resume: str,
    config: Any,
    roles: Any,
    quiet: bool,
    in_process: Callable[[Path], Transport],
) -> Run:
    """The run that the settings name, or a new one. SettingsError for a wrong setting; see `gradwatch.init`."""
    _check(settings, resume)
    notices = Notices(quiet)
    for run in lifecycle.active():
        if run.id == settings.run_id and not run.is_over:
            return run  # type: ignore[no-any-return]
    run_id = settings.run_id or _new_run_id()
    if settings.mode == DISABLED:
        return Run(run_id, name or run_id, None, notices)
    asked = OpenRun(
        id=run_id,
        process="",
        name=cut(name or "", 200),
        project=clean(settings.project),
        resume=resume,
        source="gradwatch",
        config=_mapping("config", config),
        roles=_mapping("roles", roles),
        started=time.time(),
    )
    plan = Plan(asked, settings, in_process, notices)
    notices.quiet = quiet or not plan.is_spokesman
    plan.prepare()
    if resume != ALLOW:
        plan.check()
    run = Run(run_id, name or run_id, plan.worker, notices, settings.flush_seconds)
    run.begin()
    lifecycle.remember(run)
    return run


def _new_run_id() -> str:
    """An id for a run that has none: the ranks of a job agree on it, as long as they open their runs in one order."""
    _OPENED[""] += 1
    return new_run_id(os.environ, _OPENED[""])


def _check(settings: Settings, resume: str) -> None:
    if resume not in RESUMES:
        raise SettingsError(f"resume={resume!r}: must be one of {', '.join(RESUMES)}")
    if settings.run_id and not RUN_ID.fullmatch(settings.run_id):
        raise SettingsError(f"id={settings.run_id!r}: must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first")
    if resume != ALLOW and settings.mode == OFFLINE:
        raise SettingsError(f"resume={resume!r} with mode='offline': only a collector knows which runs exist; use resume='allow'")
    if settings.mode == OFFLINE:
        _check_folder(settings.dir)


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingsError(f"dir={str(folder)!r} cannot be written ({error}): set GRADWATCH_DIR to a folder that can") from error


def _mapping(what: str, given: Any) -> dict[str, Any]:
    """A configuration or topology: a mapping, an argparse namespace or a dataclass; roles may be a list of names."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = {str(name): {} for name in given}
    read = plain(given if given is not None else {})
    if not isinstance(read, dict):
        raise SettingsError(f"{what}: must be a mapping, not {type(given).__name__}")
    return read


def newest() -> Run:
    """The newest active run, else the one that ended last; SettingsError where there was none."""
    run = lifecycle.newest()
    if run is None:
        raise SettingsError("there is no run: call gradwatch.init() first, then log or watch")
    return run  # type: ignore[no-any-return]
