"""Runs the detectors over what was committed, in sequence order: the same object live and after the fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from gradwatch.detectors import DETECTORS, Detector
from gradwatch.schema import Block, Finding
from gradwatch.store.base import Store, WatchState

BLOCK = 50_000


class Verdict(NamedTuple):
    """What the detectors say of a block: the findings that it touched, and their states after it."""

    findings: list[Finding]
    states: dict[str, bytes]


class Judge(Protocol):
    """Where the detectors run: here, or in another process. It keeps their states run by run."""

    holds_lock: bool
    """Whether they hold this interpreter's lock, so that everything else in the process waits for them."""

    def begin(self, run: str, states: Mapping[str, bytes]) -> None:
        """Take a run up with these states, instead of what it knows of it."""

    def judge(self, run: str, block: Block) -> Verdict:
        """Judge the run's next points."""

    def forget(self, run: str) -> None:
        """Let go of what is known of the run; it may be taken up again."""


class Detecting:
    """The `Judge` of this process."""

    holds_lock = True

    def __init__(self, detectors: Sequence[Detector] = DETECTORS) -> None:
        self._detectors = detectors
        self._states: dict[str, dict[str, Any]] = {}

    def begin(self, run: str, states: Mapping[str, bytes]) -> None:
        """Take a run up with these states."""
        self._states[run] = {one.name: one.load(states.get(one.name, b"")) for one in self._detectors}

    def judge(self, run: str, block: Block) -> Verdict:
        """Judge the run's next points."""
        states = self._states[run]
        latest: dict[str, Finding] = {}
        for detector in self._detectors:
            states[detector.name], found = detector.update(states[detector.name], block)
            latest.update((one.fingerprint(), one) for one in found)
        return Verdict(list(latest.values()), {one.name: one.dump(states[one.name]) for one in self._detectors})

    def forget(self, run: str) -> None:
        """Let go of what is known of the run."""
        self._states.pop(run, None)


class Watcher:
    """Follows one run of a store. Findings and the state that led to them are committed together, so a restart resumes exactly."""

    def __init__(self, store: Store, run: str, judge: Judge | None = None) -> None:
        self._store = store
        self._run = run
        self._judge = judge or Detecting()
        saved = store.watch(run)
        self._sequence = saved.sequence
        self._judge.begin(run, saved.detectors)

    @property
    def sequence(self) -> int:
        """The last sequence number that was judged."""
        return self._sequence

    def catch_up(self, block_size: int = BLOCK, blocks: int | None = None) -> list[Finding]:
        """Judge what was committed since the last call; return the findings that it opened, extended or closed.

        With `blocks` it stops after so many, and the next call goes on there.
        """
        touched: dict[str, Finding] = {}
        for sequence, block in islice(self._store.replay(self._run, after=self._sequence, size=block_size), blocks):
            verdict = self._judge.judge(self._run, block)
            self._sequence = sequence
            self._store.put_watch(self._run, WatchState(sequence, verdict.states), verdict.findings)
            touched.update((one.fingerprint(), one) for one in verdict.findings)
        return list(touched.values())
