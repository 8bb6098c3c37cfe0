"""The point store: series, points, samples and batch ids in DuckDB.

One lock owns the write connection; every read has a cursor of its own and sees the last commit. Values keep their bits,
NaN, infinities and -0.0 included, with one exception: where all values of a row group (122,880 rows) are NaN, DuckDB
keeps one NaN's payload for all of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import duckdb

from gradwatch.errors import BusyStoreError, StoreError
from gradwatch.schema import Block, Curve, Point, Sample, Selection, Series, Span, Trace
from gradwatch.store import point_queries
from gradwatch.store.base import ALL, Append, Appended
from gradwatch.store.columns import (
    Columns,
    joined,
    last_step,
    no_columns,
    point_columns,
    to_block,
    to_curves,
    to_points,
    to_trace,
)
from gradwatch.store.growth import Growth, Tail
from gradwatch.store.samples import insert_samples, select_sample_steps, select_samples
from gradwatch_migrations import points as migrations

MOST_TAILS = 256
"""Runs whose series and numbers are at hand, those that grew last; a further one's are read from the database again."""


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
        raise _why_not_open(path, str(error)) from error


def _why_not_open(path: Path, reason: str) -> StoreError:
    if "Could not set lock" in reason:
        return BusyStoreError(
            f"{path} is open in another process, and only one can hold it: stop that process or ask it ({reason})"
        )
    return StoreError(f"{path} cannot be opened as a point store: restore it from a backup or use another folder ({reason})")


class _CommittedBeforeError(Exception):
    """A batch id was committed by an earlier append."""


class PointStore:
    """Series, points and samples by run; which runs exist is not its matter."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        migrations.upgrade(database)
        self._database = database
        self._writer = database.cursor()
        self._owner = Lock()
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        # DuckDB looks into the dictionary at every statement; to register it anew would cost each append a millisecond.
        self._block = no_columns()
        self._writer.register("block", self._block)
        self._next_series_id = point_queries.last_series_id(self._writer) + 1

    def append(self, run: str, points: Block | Iterable[Block], samples: Sequence[Sample] = (), batch_id: str | None = None) -> int:
        """Add points and samples in one durable transaction; see `Store.append`."""
        blocks = [points] if isinstance(points, Block) else points
        with self._owner:
            growth = Growth(self._tail(run))
            try:
                with migrations.transaction(self._writer):
                    for block in blocks:
                        self._insert_points([self._take(run, growth, block)])
                    self._insert_samples(run, growth, samples)
                    self._insert_batches([growth.row(run, batch_id)])
            except _CommittedBeforeError:
                return self._tail(run).sequence
            self._tails[run] = growth.tail()
            return growth.sequence

    def append_group(self, appends: Sequence[Append]) -> list[Appended]:
        """Add many appends in one durable transaction; see `Store.append_group`."""
        with self._owner:
            try:
                return self._append_together(appends)
            except _CommittedBeforeError:
                # Which of them were known is not worth a look at every group: retries are rare.
                return self._append_fresh(appends)

    def _append_fresh(self, appends: Sequence[Append]) -> list[Appended]:
        """Add those whose batch id is new, in one transaction as well: all of them, or none."""
        known = point_queries.known_batches(self._writer, [(one.run, one.batch_id) for one in appends])
        fresh: list[Append] = []
        is_fresh = []
        for one in appends:
            is_fresh.append(one.batch_id is None or (one.run, one.batch_id) not in known)
            if is_fresh[-1]:
                fresh.append(one)
                known.add((one.run, one.batch_id))
        added = iter(self._append_together(fresh))
        return [
            next(added) if new else Appended(self._tail(one.run).sequence, duplicate=True)
            for one, new in zip(appends, is_fresh, strict=True)
        ]

    def _append_together(self, appends: Sequence[Append]) -> list[Appended]:
        growths = {run: Growth(self._tail(run)) for run in dict.fromkeys(one.run for one in appends)}
        parts, rows, done = [], [], []
        with migrations.transaction(self._writer):
            for one in appends:
                growth = growths[one.run]
                growth.next_batch()
                parts.append(self._take(one.run, growth, one.points))
                self._insert_samples(one.run, growth, one.samples)
                rows.append(growth.row(one.run, one.batch_id))
                done.append(Appended(growth.sequence))
            self._insert_points(parts)
            self._insert_batches(rows)
        self._tails.update((run, growth.tail()) for run, growth in growths.items())
        return done

    def _take(self, run: str, growth: Growth, block: Block) -> Columns:
        """Number the block's points, adding the series that the run has not had yet; the points are still to be inserted."""
        ids = growth.ids(block.series)
        if None in ids:
            unknown = dict.fromkeys(one for one, known in zip(block.series, ids, strict=True) if known is None)
            fresh = {one: self._next_series_id + at for at, one in enumerate(unknown)}
            self._next_series_id += len(fresh)
            point_queries.insert_series(self._writer, run, fresh)
            growth.fresh.update(fresh)
            ids = growth.ids(block.series)
        columns = point_columns(block, ids, growth.sequence) if block else {}
        growth.count(len(block), *last_step(block))
        return columns

    def _insert_samples(self, run: str, growth: Growth, samples: Sequence[Sample]) -> None:
        insert_samples(self._writer, run, samples, growth.sample)
        growth.sample += len(samples)

    def _insert_points(self, parts: Sequence[Columns]) -> None:
        filled = [part for part in parts if part]
        if not filled:
            return
        self._block.update(joined(filled))
        try:
            self._writer.execute(point_queries.INSERT_POINTS)
        finally:
            # A block's arrays cannot grow as long as somebody holds on to them.
            self._block.update(no_columns())

    def _insert_batches(self, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            point_queries.insert_batches(self._writer, rows, time.time())
        except duckdb.ConstraintException as error:
            # Only a retry pays for its inserts; a look beforehand would cost every append a millisecond.
            raise _CommittedBeforeError from error

    def replay(self, run: str, after: int = 0, size: int = 50_000) -> Iterator[tuple[int, Block]]:
        """The points committed so far, in sequence order; see `Store.replay`."""
        if size < 1:
            raise ValueError(f"replay(size={size}): a block holds at least 1 point")
        with self._reader() as reader:
            last = point_queries.last_numbers(reader, run)[0]
            series = point_queries.series_of(reader, run)
        start = max(after, 0)
        # Sequence numbers are dense, so a range of `size` numbers is a block of `size` points.
        while start < last:
            end = min(start + size, last)
            with self._reader() as reader:
                columns = point_queries.points_between(reader, run, start, end)
            yield end, to_block(columns, series)
            start = end

    def curves(self, run: str, selection: Selection = ALL) -> list[Curve]:
        """The selected series; see `Store.curves`."""
        with self._reader() as reader:
            series = point_queries.selected(point_queries.series_of(reader, run), selection)
            return to_curves(point_queries.last_writes(reader, list(series), selection), series)

    def latest(self, run: str, attempt: int) -> list[Point]:
        """The newest point of every series of an attempt; see `Store.latest`."""
        with self._reader() as reader:
            series = point_queries.selected(point_queries.series_of(reader, run), Selection(attempt=attempt))
            return to_points(point_queries.newest_points(reader, list(series)), series)

    def spans(self, run: str) -> list[Span]:
        """Every series with points and its first and last step, in the order in which they first came."""
        with self._reader() as reader:
            series = point_queries.series_of(reader, run)
            rows = point_queries.spans(reader, list(series))
        return [Span(series[series_id], first, last) for series_id, first, last in rows]

    def traces(self, run: str, wanted: Container[Series]) -> Iterator[Trace]:
        """The wanted series one by one, in the order in which they first came."""
        with self._reader() as reader:
            every = point_queries.series_of(reader, run)
        for series_id, series in every.items():
            if series in wanted:
                with self._reader() as reader:
                    columns = point_queries.last_writes(reader, [series_id], ALL)
                yield to_trace(series, columns)

    def reached(self, run: str | None = None) -> dict[str, point_queries.Reached]:
        """How far every run that has batches got, or one run."""
        with self._reader() as reader:
            return point_queries.reached(reader, run)

    def count(self, run: str, attempt: int) -> int:
        """How many points an attempt has, rewrites included."""
        with self._reader() as reader:
            return point_queries.count(reader, run, attempt)

    def samples(
        self,
        run: str,
        step: int | None = None,
        role: str | None = None,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> list[Sample]:
        """The samples by step and in the order in which they came."""
        with self._reader() as reader:
            return select_samples(reader, run, step, role, limit, attempt)

    def sample_steps(self, run: str, role: str | None = None) -> list[int]:
        """The steps that have samples, of a role or of any, in ascending order."""
        with self._reader() as reader:
            return select_sample_steps(reader, run, role)

    def checkpoint(self) -> None:
        """Move DuckDB's log into the file, which stalls appends for a moment."""
        with self._owner:
            self._writer.execute("CHECKPOINT")

    def close(self) -> None:
        """Release the database; DuckDB moves its log into the file."""
        with self._owner:
            self._writer.close()
            self._database.close()

    def _tail(self, run: str) -> Tail:
        tail = self._tails.pop(run, None) or self._stored_tail(run)
        self._tails[run] = tail
        while len(self._tails) > MOST_TAILS:
            self._tails.popitem(last=False)
        return tail

    def _stored_tail(self, run: str) -> Tail:
        with self._reader() as reader:
            series = {one: series_id for series_id, one in point_queries.series_of(reader, run).items()}
            return Tail(series, *point_queries.last_numbers(reader, run))

    @contextmanager
    def _reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        reader = self._database.cursor()
        try:
            yield reader
        finally:
            reader.close()
