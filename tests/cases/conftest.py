from collections.abc import Iterator
from pathlib import Path

import pytest
from cases.site import Site, serving


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))
    with serving(tmp_path / "data") as one:
        monkeypatch.setenv("GRADWATCH_URL", one.url)
        yield one
