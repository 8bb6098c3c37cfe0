"""Runs the detectors behind the commits: one watcher a run, on a thread of its own, which may lag but never holds up an ack."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Condition, Lock, Thread
from time import monotonic
from typing import NamedTuple

from gradwatch.schema import StoredFinding
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Judge, Watcher

TURN_SECONDS = 0.1
"""That one run may take before the next one has its turn."""
FIRST_BLOCK, LEAST_BLOCK, MOST_BLOCK = 10_000, 5_000, 200_000
"""Points of a turn: as many as fit into its time."""
PAUSE_SECONDS = 0.1
"""Between two rounds: the detectors then judge few large blocks instead of many small ones."""
GIVEN_WAY = 3.0
"""A round's duration times this is how long the detectors rest while batches wait, since they hold Python's lock."""
MOST_WATCHERS = 256
"""Kept between rounds; a further one's state is read from the store again."""
RETRY_SECONDS = 10.0
"""After an error in a run's watcher."""

logger = logging.getLogger(__name__)


class Behind(NamedTuple):
    """A run that has points which were not judged: up to which sequence number it was committed, since when, when it may go on."""

    sequence: int
    since: float
    at: float = 0.0


class Lag(NamedTuple):
    """Points that were committed and not judged, and for how many seconds the oldest of them has waited."""

    points: int
    seconds: float


class Watching:
    """Follows every run of a store. `errors` counts the failures; none of them stops the other runs.

    `is_busy` tells whether batches wait: then detectors that hold Python's lock give way, and catch up later.
    """

    def __init__(self, store: LocalStore, judge: Judge, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._detectors = judge
        self._is_busy = is_busy if judge.holds_lock else lambda: False
        self._block = FIRST_BLOCK
        self._behind: dict[str, Behind] = {}
        self._judged: dict[str, int] = {}
        self._watchers: OrderedDict[str, Watcher] = OrderedDict()
        self._findings: dict[str, tuple[StoredFinding, ...]] = {}
        self._reading = Lock()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._follow, name="gradwatch-watcher", daemon=True)
        self.errors = 0

    def start(self) -> None:
        """Take up every run where its watcher stopped, and follow the commits."""
        for state in self._store.states():
            judged = self._store.watch(state.info.id).sequence
            if judged < state.sequence:
                self._judged[state.info.id] = judged
                self.committed(state.info.id, state.sequence)
        self._thread.start()

    def close(self) -> None:
        """Stop after the block in hand; what is left is judged after the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether commits are followed."""
        return self._thread.is_alive()

    def committed(self, run: str, sequence: int) -> None:
        """The run's points up to `sequence` are durable."""
        with self._changed:
            known = self._behind.get(run)
            self._behind[run] = Behind(sequence, monotonic()) if known is None else known._replace(sequence=sequence)
            if known is None:
                self._changed.notify_all()

    def findings(self, run: str) -> tuple[StoredFinding, ...]:
        """The run's findings as they were committed last."""
        known = self._findings.get(run)
        return self.refresh(run) if known is None else known

    def refresh(self, run: str) -> tuple[StoredFinding, ...]:
        """Read the run's findings again: something beside the watcher has changed one."""
        # Of two who read at once the later reader must be the one who is remembered.
        with self._reading:
            self._findings[run] = found = tuple(self._store.findings(run))
        return found

    def lag(self) -> Lag:
        """How far the detectors are behind the commits, over all runs."""
        now = monotonic()
        with self._changed:
            points = sum(max(0, one.sequence - self._judged.get(run, 0)) for run, one in self._behind.items())
            return Lag(points, max((now - one.since for one in self._behind.values()), default=0.0))

    def wait_until_judged(self, timeout: float) -> bool:
        """Wait until no run is behind; False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._behind, timeout)

    def _follow(self) -> None:
        while due := self._due():
            begun = monotonic()
            more = False
            for run in due:
                if self._closing:
                    return
                more = self._judge(run) or more
            self._rest(0.0 if more else PAUSE_SECONDS, GIVEN_WAY * (monotonic() - begun))

    def _rest(self, least: float, most: float) -> None:
        """Wait for as long as batches wait, within these seconds."""
        begun = monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._closing, least)
            while self._is_busy() and not self._closing and monotonic() - begun < most:
                self._changed.wait_for(lambda: self._closing, PAUSE_SECONDS)

    def _due(self) -> list[str]:
        """Wait for runs that are behind and may go on; none at the end."""
        with self._changed:
            while not self._closing:
                now = monotonic()
                due = [run for run, one in self._behind.items() if one.at <= now]
                if due:
                    return due
                first = min((one.at for one in self._behind.values()), default=None)
                self._changed.wait(None if first is None else first - now)
            return []

    def _judge(self, run: str) -> bool:
        """Judge a block of the run; whether there is more than that."""
        begun, block = monotonic(), self._block
        try:
            watcher = self._watcher(run)
            before = watcher.sequence
            touched = watcher.catch_up(block, blocks=1)
            if touched:
                self.refresh(run)
        except Exception:  # noqa: BLE001
            self._fail(run)
            return False
        self._advance(run, watcher.sequence, begun)
        is_full = watcher.sequence - before >= block
        if is_full:
            self._fit(monotonic() - begun)
        return is_full

    def _fit(self, took: float) -> None:
        """Let the next turn take as many points as its time allows, going by how long a full one took."""
        factor = min(max(TURN_SECONDS / took, 0.25), 2.0)
        self._block = min(max(int(self._block * factor), LEAST_BLOCK), MOST_BLOCK)

    def _watcher(self, run: str) -> Watcher:
        watcher = self._watchers.pop(run, None) or Watcher(self._store, run, self._detectors)
        self._watchers[run] = watcher
        if len(self._watchers) > MOST_WATCHERS:
            self._detectors.forget(self._watchers.popitem(last=False)[0])
        return watcher

    def _advance(self, run: str, judged: int, begun: float) -> None:
        with self._changed:
            self._judged[run] = judged
            one = self._behind[run]
            if one.sequence <= judged:
                del self._behind[run]
                self._changed.notify_all()
            else:
                self._behind[run] = Behind(one.sequence, max(one.since, begun))

    def _fail(self, run: str) -> None:
        """Go on with the other runs. All states are the store's again: this one may be half a block ahead, or all are gone."""
        self.errors += 1
        logger.exception("the watcher of run %r failed; it tries again in %.0f s", run, RETRY_SECONDS)
        self._watchers.clear()
        with self._changed:
            self._behind[run] = self._behind[run]._replace(at=monotonic() + RETRY_SECONDS)
