"""Stores of folders: opened by a command, and filled from an ingested file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gradwatch.cli.ingest import Ingested, engine_errors
from gradwatch.errors import GradwatchError, NoStoreError
from gradwatch.schema import RunInfo
from gradwatch.store import open_store
from gradwatch.store.base import Store
from gradwatch.watcher import Watcher

if TYPE_CHECKING:
    from gradwatch.store.local import LocalStore


@contextmanager
def existing(data: Path) -> Iterator[LocalStore]:
    """The store in a folder that must be there already: reading creates nothing."""
    from gradwatch.store.local import POINTS_FILE  # noqa: PLC0415 (the engines: where a collector answers they are not needed)

    if not (data / POINTS_FILE).is_file():
        raise NoStoreError(
            f"{data}: there is no store; import a log with `gradwatch import PATH --data {data}`, or name another folder"
        )
    with opened(data) as store:
        yield store


@contextmanager
def opened(data: Path) -> Iterator[LocalStore]:
    """The store in a folder, created where there is none."""
    with engine_errors(str(data)):
        store = open_store(data)
        try:
            yield store
        finally:
            store.close()


def import_runs(done: Ingested, store: Store, name: str | None) -> list[dict[str, Any]]:
    """Copy the runs of a file that was read to its end into a store, each in one transaction, and watch them there."""
    if name is not None and len(done.runs) > 1:
        names = ", ".join(info.name for info, _ in done.runs[:5])
        raise GradwatchError(f"--run names one run, but the log holds {len(done.runs)} ({names}); leave it out to keep their names")
    known = {one.id: one for one in store.runs()}
    return [
        _import(info if name is None else msgspec.structs.replace(info, name=name), done.store, store, known.get(info.id))
        for info, _ in done.runs
    ]


def _import(info: RunInfo, source: Store, store: Store, known: RunInfo | None) -> dict[str, Any]:
    """Copy one run and say what the store has of it: a run that was there keeps its name and project."""
    kept = known or info
    # A copy that was interrupted is known, but was not judged to its end: each of these steps can be done again.
    if known is None or store.watch(info.id).sequence < source.watch(info.id).sequence:
        store.put_run(kept)
        store.append(info.id, (block for _, block in source.replay(info.id)), batch_id=f"import:{info.id}")
        Watcher(store, info.id).catch_up()
    found = len(store.findings(info.id))
    return {"id": kept.id, "name": kept.name, "project": kept.project, "rows": kept.rows, "findings": found, "new": known is None}
