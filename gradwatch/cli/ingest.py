"""A log file into a store of its own, watched: what `diagnose` reports from and `import` copies from."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gradwatch.errors import StoreError, UnreadableLogError
from gradwatch.importers.blocks import RunLog
from gradwatch.importers.names import run_name, storable
from gradwatch.importers.reader import LogFile
from gradwatch.schema import RunInfo
from gradwatch.store import open_store
from gradwatch.watcher import Watcher

if TYPE_CHECKING:
    from gradwatch.store.local import LocalStore

IN_MEMORY_BYTES = 32 * 2**20
STORE_MEMORY_MB = 64
"""What the temporary store of a larger file may hold in memory."""


class Ingested(NamedTuple):
    """A watched file: the store that holds its runs, and each run with its steps."""

    store: LocalStore
    runs: list[tuple[RunInfo, RunLog]]


@contextmanager
def ingested(path: Path, project: str = "default", progress: Callable[[int], None] | None = None) -> Iterator[Ingested]:
    """Read one log file and run the detectors over it; UnreadableLogError where it is no log.

    A large file's points go to a temporary folder, so that memory does not grow with the log.
    """
    with tempfile.TemporaryDirectory(prefix="gradwatch-") as folder, engine_errors(f"{path} in {folder}"):
        log = LogFile(path, progress)
        small = log.size < IN_MEMORY_BYTES
        store = open_store(None) if small else open_store(Path(folder), STORE_MEMORY_MB)
        try:
            yield Ingested(store, _read(log, store, project))
        finally:
            store.close()


def _read(log: LogFile, store: LocalStore, project: str) -> list[tuple[RunInfo, RunLog]]:
    base = run_id(log.path)
    ids: dict[str, str] = {}
    for run, block in log.blocks():
        if run not in ids:
            ids[run] = base if not run else hashlib.sha256(f"{base}/{run}".encode()).hexdigest()[:12]
            store.put_run(RunInfo(ids[run], run_name(log.path, run), project))
        store.append(ids[run], block)
    result = []
    for run, told in log.runs.items():
        info = RunInfo(
            id=ids.get(run) or base,
            name=run_name(log.path, run),
            project=project,
            source=storable(str(log.path)),
            format=log.format,
            rows=told.rows,
            created=time.time(),
            config=told.config,
            warnings=tuple(log.warnings),
        )
        store.put_run(info)
        Watcher(store, info.id).catch_up()
        result.append((info, told))
    return result


def run_id(path: Path) -> str:
    """Twelve hex digits of the file's content: importing a file again is recognised."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise UnreadableLogError(f"{path}: reading failed ({error.strerror or error}); is the disk still there?") from error
    return digest.hexdigest()[:12]


@contextmanager
def engine_errors(where: str) -> Iterator[None]:
    """Says a failure of the store's engines, such as a full disk or a damaged page, as a StoreError."""
    import duckdb  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        yield
    except (duckdb.Error, SQLAlchemyError, msgspec.DecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(f"{where}: the store failed ({reason}); free space on its disk, or restore it from a backup") from error
