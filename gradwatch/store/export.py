"""One run's points as a Parquet or CSV file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

import duckdb

from gradwatch.errors import StoreError
from gradwatch.schema import Block
from gradwatch.store.duckdb import PointStore, connect

FORMATS = {".parquet": "FORMAT parquet, COMPRESSION zstd", ".csv": "FORMAT csv, HEADER"}
"""DuckDB's options by file suffix."""


def export_points(blocks: Iterable[Block], path: Path) -> int:
    """Write a run's points, in the order of their sequence, to `path`, which appears complete or not at all; return their number.

    Columns: sequence, the series' axes, step, wall_time, value, flags. NaN, infinities and -0.0 are kept; a CSV writes
    every NaN as `nan`. The store's own connection may touch no file but its own, so a scratch database in memory does
    the writing; it holds the run's points meanwhile, about 40 bytes each.
    """
    options = FORMATS.get(path.suffix.lower())
    if options is None:
        raise StoreError(f"cannot export to {path}: the suffix names the format, use one of {', '.join(FORMATS)}")
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        count = _write(blocks, part, options)
        part.replace(path)
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"cannot export to {path}: check the folder and its free space ({error})") from error
    finally:
        part.unlink(missing_ok=True)
    return count


def _write(blocks: Iterable[Block], part: Path, options: str) -> int:
    database = connect(None, file_access=True)
    scratch = PointStore(database)
    try:
        scratch.append("run", blocks)
        return int(database.execute(f"{_COPY_POINTS} ({options})", [str(part)]).fetchall()[0][0])
    finally:
        scratch.close()


_COPY_POINTS = """
COPY (
    SELECT
        sequence, stream, attempt, metric, stat, source_key, role, agent, policy, scope, rank,
        step, wall_time, value, flags
    FROM points JOIN series ON series.id = points.series_id
    ORDER BY sequence
) TO ?
"""
