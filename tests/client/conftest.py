from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clean import cleaned
from client.scripted import Server, serving


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting and no launcher from outside; runs that a test leaves open end with it."""
    with cleaned(monkeypatch, tmp_path):
        yield


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """To be called by a test: from then on as outside of pytest, where a caller's error is told and not raised."""
    return lambda: monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
