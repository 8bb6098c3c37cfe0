"""What tests of the client must not see of the machine, nor leave to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradwatch.client import lifecycle
from gradwatch.client.identity import RANKS
from gradwatch.settings import SETTINGS


@contextmanager
def cleaned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting and no launcher from outside; runs that a test leaves open end with it."""
    for name in (*(one.variable for one in SETTINGS), *(one for pair in RANKS for one in pair), "SLURM_JOB_ID", "RAY_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))
    monkeypatch.setattr("gradwatch.client.worker.LAST_POLL_SECONDS", 0.0)
    yield
    for run in lifecycle.active():
        run.finish()
