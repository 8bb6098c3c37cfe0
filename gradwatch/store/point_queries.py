"""The SQL of the point store, one function a query; each runs on its caller's cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb
from msgspec.structs import astuple

from gradwatch.schema import Selection, Series
from gradwatch.store.columns import Columns, transposed

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class Reached(NamedTuple):
    """How far a run got: its last sequence number, newest attempt, that one's highest step, and the last commit's Unix time."""

    sequence: int
    attempt: int
    last_step: int | None
    committed: float


def last_series_id(cursor: duckdb.DuckDBPyConnection) -> int:
    """The highest id that a series has; 0 where there is none."""
    return int(cursor.execute("SELECT coalesce(max(id), 0) FROM series").fetchall()[0][0])


def last_numbers(cursor: duckdb.DuckDBPyConnection, run: str) -> tuple[int, int]:
    """The run's last sequence and sample numbers; 0 where there are none."""
    sql = "SELECT coalesce(max(sequence), 0), coalesce(max(sample), 0) FROM batches WHERE run = ?"
    sequence, sample = cursor.execute(sql, [run]).fetchall()[0]
    return sequence, sample


def series_of(cursor: duckdb.DuckDBPyConnection, run: str) -> dict[int, Series]:
    """The run's series by id, in the order in which they first came."""
    return {series_id: Series(*axes) for series_id, *axes in cursor.execute(_SELECT_SERIES, [run]).fetchall()}


def selected(series: Mapping[int, Series], selection: Selection) -> dict[int, Series]:
    """The series that the selection names."""
    return {
        series_id: one
        for series_id, one in series.items()
        if (selection.metrics is None or one.metric in selection.metrics)
        and (selection.roles is None or one.role in selection.roles)
        and (selection.scopes is None or one.scope in selection.scopes)
        and selection.stream in (None, one.stream)
        and selection.attempt in (None, one.attempt)
    }


def insert_series(cursor: duckdb.DuckDBPyConnection, run: str, fresh: Mapping[Series, int]) -> None:
    """Name new series."""
    if fresh:
        rows = [(series_id, *astuple(series)) for series, series_id in fresh.items()]
        cursor.execute(_INSERT_SERIES, [run, *transposed(rows)])


def insert_batches(cursor: duckdb.DuckDBPyConnection, rows: Sequence[tuple[object, ...]], committed: float) -> None:
    """Note batches (run, batch id, sequence, sample, attempt, last step); ConstraintException where a batch id is known."""
    if rows:
        cursor.execute(_INSERT_BATCHES, [*transposed(rows), committed])


def known_batches(cursor: duckdb.DuckDBPyConnection, batches: Sequence[tuple[str, str | None]]) -> set[tuple[str, str | None]]:
    """Those of the batches (run, batch id) that were committed."""
    return {(run, batch_id) for run, batch_id in cursor.execute(_SELECT_KNOWN_BATCHES, transposed(batches)).fetchall()}


def points_between(cursor: duckdb.DuckDBPyConnection, run: str, after: int, last: int) -> Columns:
    """The run's points with sequence numbers in (after, last], in their order."""
    return cursor.execute(_SELECT_POINTS, [after, last, run]).fetchnumpy()


def last_writes(cursor: duckdb.DuckDBPyConnection, series_ids: list[int], selection: Selection) -> Columns:
    """The last write of every step in the selected range, sorted by series and step, thinned where the selection says so."""
    about: dict[str, object] = {
        "series": series_ids,
        "first": _LOWEST if selection.first_step is None else selection.first_step,
        "last": _HIGHEST if selection.last_step is None else selection.last_step,
    }
    if selection.buckets > 0:
        return cursor.execute(_SELECT_THINNED, about | {"buckets": selection.buckets}).fetchnumpy()
    return cursor.execute(_SELECT_LAST_WRITES, about).fetchnumpy()


def newest_points(cursor: duckdb.DuckDBPyConnection, series_ids: list[int]) -> Columns:
    """The last write of the highest step of every series."""
    return cursor.execute(_SELECT_NEWEST, [series_ids]).fetchnumpy()


def spans(cursor: duckdb.DuckDBPyConnection, series_ids: list[int]) -> list[tuple[int, int, int]]:
    """(series id, lowest step, highest step) of every series that has points."""
    return cursor.execute(_SELECT_SPANS, [series_ids]).fetchall()


def reached(cursor: duckdb.DuckDBPyConnection, run: str | None) -> dict[str, Reached]:
    """How far every run that has batches got, or one run."""
    return {row[0]: Reached(*row[1:]) for row in cursor.execute(_SELECT_REACHED, {"run": run}).fetchall()}


def count(cursor: duckdb.DuckDBPyConnection, run: str, attempt: int) -> int:
    """How many points an attempt has, rewrites included."""
    return int(cursor.execute(_COUNT_POINTS, [run, attempt]).fetchall()[0][0])


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

INSERT_POINTS = """
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

_INSERT_BATCHES = """
INSERT INTO batches (run, batch_id, sequence, sample, attempt, last_step, committed)
SELECT
    unnest($1::VARCHAR[]),
    unnest($2::VARCHAR[]),
    unnest($3::BIGINT[]),
    unnest($4::BIGINT[]),
    unnest($5::BIGINT[]),
    unnest($6::BIGINT[]),
    $7
"""

_SELECT_KNOWN_BATCHES = """
SELECT run, batch_id
FROM batches
JOIN (SELECT unnest($1::VARCHAR[]) AS run, unnest($2::VARCHAR[]) AS batch_id) USING (run, batch_id)
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

_LAST_WRITES = """
SELECT series_id, step, arg_max(value, sequence) AS value, arg_max(wall_time, sequence) AS wall_time
FROM points
WHERE series_id IN (SELECT unnest($series::INTEGER[])) AND step BETWEEN $first AND $last
GROUP BY series_id, step
"""

_SELECT_LAST_WRITES = f"{_LAST_WRITES} ORDER BY series_id, step"

# Of each range: where it begins and ends, where its extremes are, and where it is not finite.
_SELECT_THINNED = f"""
WITH writes AS ({_LAST_WRITES}),
bounds AS (SELECT min(step)::HUGEINT AS low, max(step)::HUGEINT AS high FROM writes),
placed AS (
    SELECT writes.*, (step::HUGEINT - low) * $buckets // (high - low + 1) AS bucket, isfinite(value) AS finite
    FROM writes, bounds
),
kept AS (
    SELECT
        series_id,
        unnest([
            min(step),
            max(step),
            arg_min(step, value) FILTER (finite),
            arg_max(step, value) FILTER (finite),
            min(step) FILTER (NOT finite),
            max(step) FILTER (NOT finite)
        ]) AS step
    FROM placed
    GROUP BY series_id, bucket
)
SELECT series_id, step, value, wall_time
FROM writes
WHERE (series_id, step) IN (SELECT (series_id, step) FROM kept WHERE step IS NOT NULL)
ORDER BY series_id, step
"""

_SELECT_NEWEST = """
SELECT series_id, step, value, wall_time, flags
FROM points
WHERE series_id IN (SELECT unnest(?::INTEGER[]))
QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY step DESC, sequence DESC) = 1
ORDER BY series_id
"""

_SELECT_SPANS = """
SELECT series_id, min(step), max(step)
FROM points
WHERE series_id IN (SELECT unnest(?::INTEGER[]))
GROUP BY series_id
ORDER BY series_id
"""

_SELECT_REACHED = """
SELECT run, max(sequence), any_value(newest), max(last_step) FILTER (attempt = newest), max(committed)
FROM (
    SELECT *, max(attempt) OVER (PARTITION BY run) AS newest
    FROM batches
    WHERE run = coalesce($run, run)
)
GROUP BY run
"""

_COUNT_POINTS = """
SELECT count(*)
FROM points
WHERE series_id IN (SELECT id FROM series WHERE run = ? AND attempt = ?)
"""
