"""Public reports about servers: one process writes, and concurrent runs corrupt nothing."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cases.site import Site, serving

import gradwatch
from gradwatch.client.http_query import HttpQuery
from gradwatch.errors import StoreError
from gradwatch.store import open_store


def test_trainer_and_page_at_once_never_find_the_database_locked(site: Site, tmp_path: Path) -> None:
    """trackio#133: one process writes, and all reads go through it."""
    with gradwatch.init(id="r", quiet=True) as run, HttpQuery(site.url) as query:
        for step in range(300):
            run.log({"loss": float(step)}, step=step)
            if step % 10 == 0:
                query.states()
        assert run.flush()
        assert [one.values for one in query.curves("r")] == [[float(step) for step in range(300)]]
    with pytest.raises(StoreError, match="already open"):
        open_store(tmp_path / "data")


def test_fifty_concurrent_runs_leave_a_whole_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """aim#2869: fifty writers, then every value of every run is read back from the files, bit for bit."""
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))

    def value(number: int, step: int) -> float:
        return float(struct.unpack("<d", struct.pack("<Q", (number << 52 | step * 0x9E3779B97F4A7C15) % 2**64))[0])

    with serving(tmp_path / "data") as site:

        def write(number: int) -> None:
            run = gradwatch.init(id=f"run-{number}", url=site.url, quiet=True)
            for step in range(40):
                run.log({"x": value(number, step)}, step=step)
            assert run.flush(60)
            run.finish()

        with ThreadPoolExecutor(50) as pool:
            list(pool.map(write, range(50)))
    store = open_store(tmp_path / "data")
    for number in range(50):
        (curve,) = store.curves(f"run-{number}")
        read = [struct.pack("<d", one) for one in curve.values]
        assert read == [struct.pack("<d", value(number, step)) for step in range(40)]
    assert len(store.runs()) == 50
    store.close()
