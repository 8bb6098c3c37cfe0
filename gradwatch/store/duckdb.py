"""The point store: series, points, samples and batch ids in DuckDB.

One lock owns the write connection; every read has a cursor of its own and sees the last commit. Values keep their bits,
NaN, infinities and -0.0 included, with one exception: where all values of a row group (122,880 rows) are NaN, DuckDB
keeps one NaN's payload for all of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import duckdb
from msgspec.structs import astuple

from gradwatch.errors import StoreError
from gradwatch.schema import Block, Sample, Series
from gradwatch.store.base import Curve
from gradwatch.store.columns import Columns, Span, Trace, point_columns, to_block, to_curves, to_trace, transposed
from gradwatch.store.samples import insert_samples, select_samples
from gradwatch_migrations import points as migrations


def connect(path: Path | None, file_access: bool = False, memory_mb: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB file, or a database in memory, without access to any other file unless asked.

    Within `memory_mb` DuckDB works on one thread, since each takes its share, and moves what does not fit into the file.
    Raises StoreError where the file is locked, damaged or not a database.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": file_access,
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "lock_configuration": True,
        # A checkpoint inside an append stalls it for up to 250 ms; closing the database makes one in any case.
        "wal_autocheckpoint": "1GB",
    }
    if memory_mb is not None:
        settings |= {"memory_limit": f"{memory_mb}MB", "threads": 1, "wal_autocheckpoint": "16MB"}
    if path is None:
        return duckdb.connect(":memory:", config=settings)
    if "?" in str(path):
        raise StoreError(f"{path} has a question mark, after which DuckDB reads options: use a folder without one")
    try:
        # Files stay readable by the DuckDB 1.5 series.
        return duckdb.connect(path, config=settings | {"storage_compatibility_version": "v1.5.0"})
    except duckdb.Error as error:
        raise StoreError(_why_not_open(path, str(error))) from error


def _why_not_open(path: Path, reason: str) -> str:
    if "Could not set lock" in reason:
        return f"{path} is open in another process, and only one can hold it: stop that process or ask it ({reason})"
    return f"{path} cannot be opened as a point store: restore it from a backup or use another folder ({reason})"


class _CommittedBeforeError(Exception):
    """The batch id was committed by an earlier append."""


@dataclass(slots=True)
class _Tail:
    """Where a run's next append goes on: its series' ids, its last sequence number and its last sample number."""

    series: dict[Series, int] = field(default_factory=dict)
    sequence: int = 0
    sample: int = 0


class PointStore:
    """Series, points and samples by run; which runs exist is not its matter."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        migrations.upgrade(database)
        self._database = database
        self._writer = database.cursor()
        self._owner = Lock()
        self._tails: dict[str, _Tail] = {}
        self._next_series_id = self._select_last_series_id() + 1

    def append(self, run: str, points: Block | Iterable[Block], samples: Sequence[Sample] = (), batch_id: str | None = None) -> int:
        """Add points and samples in one durable transaction; see `Store.append`."""
        blocks = [points] if isinstance(points, Block) else points
        with self._owner:
            tail = self._tail(run)
            with suppress(_CommittedBeforeError):
                self._tails[run] = tail = self._commit(run, tail, blocks, samples, batch_id)
            return tail.sequence

    def replay(self, run: str, after: int = 0, size: int = 50_000) -> Iterator[tuple[int, Block]]:
        """The points committed so far, in sequence order; see `Store.replay`."""
        if size < 1:
            raise ValueError(f"replay(size={size}): a block holds at least 1 point")
        last = self._select_last_numbers(run)[0]
        series = self._select_series(run)
        start = max(after, 0)
        # Sequence numbers are dense, so a range of `size` numbers is a block of `size` points.
        while start < last:
            end = min(start + size, last)
            yield end, to_block(self._select_points(run, start, end), series)
            start = end

    def curves(self, run: str, metrics: Iterable[str] | None = None) -> list[Curve]:
        """The last write of every step of every series, in the order in which the series first came."""
        series = self._select_series(run)
        if metrics is not None:
            wanted = frozenset(metrics)
            series = {series_id: one for series_id, one in series.items() if one.metric in wanted}
        return to_curves(self._select_last_writes(list(series)), series)

    def spans(self, run: str) -> list[Span]:
        """Every series with points and its first and last step, in the order in which they first came."""
        series = self._select_series(run)
        with self._reader() as reader:
            rows = reader.execute(_SELECT_SPANS, [list(series)]).fetchall()
        return [Span(series[series_id], first, last) for series_id, first, last in rows]

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series one by one, in the order in which they first came."""
        for series_id, series in self._select_series(run).items():
            if series in wanted:
                with self._reader() as reader:
                    rows = reader.execute(_SELECT_TRACE, [series_id]).fetchnumpy()
                yield to_trace(series, rows)

    def samples(self, run: str, step: int | None = None, role: str | None = None) -> list[Sample]:
        """The samples by step and in the order in which they came."""
        with self._reader() as reader:
            return select_samples(reader, run, step, role)

    def close(self) -> None:
        """Release the database; DuckDB moves its log into the file."""
        with self._owner:
            self._writer.close()
            self._database.close()

    def _tail(self, run: str) -> _Tail:
        if run not in self._tails:
            series = {one: series_id for series_id, one in self._select_series(run).items()}
            self._tails[run] = _Tail(series, *self._select_last_numbers(run))
        return self._tails[run]

    def _commit(self, run: str, tail: _Tail, blocks: Iterable[Block], samples: Sequence[Sample], batch_id: str | None) -> _Tail:
        """Commit everything or nothing; return where the run goes on then."""
        new: dict[Series, int] = {}
        ids = ChainMap(new, tail.series)
        sequence, next_id = tail.sequence, self._next_series_id
        with migrations.transaction(self._writer):
            for block in blocks:
                fresh = {one: next_id + i for i, one in enumerate(dict.fromkeys(one for one in block.series if one not in ids))}
                self._insert_series(run, fresh)
                new.update(fresh)
                next_id += len(fresh)
                self._insert_points(block, ids, sequence)
                sequence += len(block)
            insert_samples(self._writer, run, samples, tail.sample)
            self._insert_batch(run, batch_id, sequence, tail.sample + len(samples))
        self._next_series_id = next_id
        tail.series.update(new)
        return _Tail(tail.series, sequence, tail.sample + len(samples))

    def _insert_batch(self, run: str, batch_id: str | None, sequence: int, sample: int) -> None:
        try:
            self._writer.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", [run, batch_id, sequence, sample])
        except duckdb.ConstraintException as error:
            # Only a retry pays for its inserts; a look beforehand would cost every append a millisecond.
            raise _CommittedBeforeError from error

    def _insert_series(self, run: str, fresh: Mapping[Series, int]) -> None:
        if fresh:
            rows = [(series_id, *astuple(series)) for series, series_id in fresh.items()]
            self._writer.execute(_INSERT_SERIES, [run, *transposed(rows)])

    def _insert_points(self, block: Block, ids: Mapping[Series, int], after: int) -> None:
        if not block:
            return
        self._writer.register("block", point_columns(block, ids, after))
        try:
            self._writer.execute(_INSERT_POINTS)
        finally:
            # DuckDB would otherwise hold on to the block's arrays, which then cannot grow.
            self._writer.unregister("block")

    def _select_last_series_id(self) -> int:
        return int(self._writer.execute("SELECT coalesce(max(id), 0) FROM series").fetchall()[0][0])

    def _select_last_numbers(self, run: str) -> tuple[int, int]:
        sql = "SELECT coalesce(max(sequence), 0), coalesce(max(sample), 0) FROM batches WHERE run = ?"
        with self._reader() as reader:
            sequence, sample = reader.execute(sql, [run]).fetchall()[0]
        return sequence, sample

    def _select_series(self, run: str) -> dict[int, Series]:
        with self._reader() as reader:
            return {series_id: Series(*axes) for series_id, *axes in reader.execute(_SELECT_SERIES, [run]).fetchall()}

    def _select_points(self, run: str, after: int, last: int) -> Columns:
        with self._reader() as reader:
            return reader.execute(_SELECT_POINTS, [after, last, run]).fetchnumpy()

    def _select_last_writes(self, series_ids: list[int]) -> Columns:
        with self._reader() as reader:
            return reader.execute(_SELECT_LAST_WRITES, [series_ids]).fetchnumpy()

    @contextmanager
    def _reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        reader = self._database.cursor()
        try:
            yield reader
        finally:
            reader.close()


_INSERT_SERIES = """
INSERT INTO series
SELECT
    unnest($2::INTEGER[]),
    $1,
    unnest($3::VARCHAR[]),
    unnest($4::VARCHAR[]),
    unnest($5::VARCHAR[]),
    unnest($6::BIGINT[]),
    unnest($7::VARCHAR[]),
    unnest($8::VARCHAR[]),
    unnest($9::VARCHAR[]),
    unnest($10::VARCHAR[]),
    unnest($11::VARCHAR[]),
    unnest($12::BIGINT[])
"""

_INSERT_POINTS = """
INSERT INTO points
SELECT
    series_id,
    sequence,
    step,
    coalesce(wall_time, 'nan'::DOUBLE),
    coalesce(value, value_bits::BIT::DOUBLE),
    flags
FROM block
"""

_SELECT_SERIES = """
SELECT id, metric, source_key, stream, attempt, stat, role, agent, policy, scope, rank
FROM series
WHERE run = ?
ORDER BY id
"""

_SELECT_POINTS = """
SELECT series_id, step, wall_time, value, flags
FROM points
WHERE sequence > ? AND sequence <= ? AND series_id IN (SELECT id FROM series WHERE run = ?)
ORDER BY sequence
"""

_SELECT_LAST_WRITES = """
SELECT series_id, step, arg_max(value, sequence) AS value, arg_max(wall_time, sequence) AS wall_time
FROM points
WHERE series_id IN (SELECT unnest(?::INTEGER[]))
GROUP BY series_id, step
ORDER BY series_id, step
"""

_SELECT_SPANS = """
SELECT series_id, min(step), max(step)
FROM points
WHERE series_id IN (SELECT unnest(?::INTEGER[]))
GROUP BY series_id
ORDER BY series_id
"""

_SELECT_TRACE = """
SELECT step, arg_max(value, sequence) AS value
FROM points
WHERE series_id = ?
GROUP BY step
ORDER BY step
"""
