"""Runs the detectors over what was committed, in sequence order: the same object live and after the fact."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from gradwatch.detectors import DETECTORS, Detector
from gradwatch.schema import Block, Finding
from gradwatch.store.base import Store, WatchState

BLOCK = 50_000


class Watcher:
    """Follows one run of a store. Findings and the state that led to them are committed together, so a restart resumes exactly."""

    def __init__(self, store: Store, run: str, detectors: Sequence[Detector] = DETECTORS) -> None:
        self._store = store
        self._run = run
        self._detectors = detectors
        saved = store.watch(run)
        self._sequence = saved.sequence
        self._states: dict[str, Any] = {one.name: one.load(saved.detectors.get(one.name, b"")) for one in detectors}

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
            found = self._judge(block)
            self._sequence = sequence
            self._store.put_watch(self._run, self._saved(), found)
            touched.update((one.fingerprint(), one) for one in found)
        return list(touched.values())

    def _judge(self, block: Block) -> list[Finding]:
        latest: dict[str, Finding] = {}
        for detector in self._detectors:
            self._states[detector.name], found = detector.update(self._states[detector.name], block)
            latest.update((one.fingerprint(), one) for one in found)
        return list(latest.values())

    def _saved(self) -> WatchState:
        return WatchState(self._sequence, {one.name: one.dump(self._states[one.name]) for one in self._detectors})
