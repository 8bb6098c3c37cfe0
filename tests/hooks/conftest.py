from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cases.site import Site, serving
from clean import cleaned

pytest.register_assert_rewrite("contracts.hook_contract")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting and no launcher from outside, one thread; runs that a test leaves open end with it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with cleaned(monkeypatch, tmp_path):
        yield
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A real collector, over HTTP."""
    with serving(tmp_path_factory.mktemp("site")) as one:
        yield one


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """To be called by a test: from then on as outside of pytest, where an error of ours is told and not raised."""
    return lambda: monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
