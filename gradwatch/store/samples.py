"""How samples lie in DuckDB: one row a sample, its rewards as a map."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from gradwatch.schema import Sample
from gradwatch.store.columns import transposed

_NO_LIMIT = 2**62


def insert_samples(connection: duckdb.DuckDBPyConnection, run: str, samples: Sequence[Sample], after: int) -> None:
    """Add the samples, numbered from `after` + 1."""
    if samples:
        connection.execute(_INSERT_SAMPLES, [run, after, *transposed(_row(sample) for sample in samples)])


def select_samples(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    step: int | None,
    role: str | None,
    limit: int | None,
    attempt: int | None,
) -> list[Sample]:
    """The run's samples of a step, role and attempt (None: of all), by step and number; the first `limit`."""
    about = {"run": run, "step": step, "role": role, "attempt": attempt, "limit": _NO_LIMIT if limit is None else limit}
    rows = connection.execute(_SELECT_SAMPLES, about).fetchall()
    return [Sample(*row) for row in rows]


def select_sample_steps(connection: duckdb.DuckDBPyConnection, run: str, role: str | None) -> list[int]:
    """The steps that have samples, of a role or of any."""
    return [step for (step,) in connection.execute(_SELECT_STEPS, {"run": run, "role": role}).fetchall()]


_INSERT_SAMPLES = """
INSERT INTO samples (
    run, number, step, role, agent, turn, group_id, prompt, output, rewards,
    advantage, prompt_tokens, output_tokens, format_valid, influence, flags, attempt
)
SELECT
    $1,
    $2 + unnest(range(1, len($3) + 1)),
    unnest($3::BIGINT[]),
    unnest($4::VARCHAR[]),
    unnest($5::VARCHAR[]),
    unnest($6::BIGINT[]),
    unnest($7::VARCHAR[]),
    unnest($8::VARCHAR[]),
    unnest($9::VARCHAR[]),
    map(unnest($10::VARCHAR[][]), unnest($11::VARCHAR[][]::DOUBLE[][])),
    unnest($12::VARCHAR[]::DOUBLE[]),
    unnest($13::BIGINT[]),
    unnest($14::BIGINT[]),
    unnest($15::BOOLEAN[]),
    unnest($16::VARCHAR[]::DOUBLE[]),
    unnest($17::BIGINT[]),
    unnest($18::BIGINT[])
"""

_SELECT_SAMPLES = """
SELECT
    step, role, agent, turn, group_id, prompt, output, rewards,
    advantage, prompt_tokens, output_tokens, format_valid, influence, flags, attempt
FROM samples
WHERE run = $run AND ($step IS NULL OR step = $step) AND ($role IS NULL OR role = $role)
    AND ($attempt IS NULL OR attempt = $attempt)
ORDER BY step, number
LIMIT $limit
"""

_SELECT_STEPS = """
SELECT DISTINCT step
FROM samples
WHERE run = $run AND ($role IS NULL OR role = $role)
ORDER BY step
"""


def _row(sample: Sample) -> tuple[object, ...]:
    return (
        sample.step,
        sample.role,
        sample.agent,
        sample.turn,
        sample.group,
        sample.prompt,
        sample.output,
        list(sample.rewards.keys()),
        [_text(reward) for reward in sample.rewards.values()],
        _text(sample.advantage),
        sample.prompt_tokens,
        sample.output_tokens,
        sample.format_valid,
        _text(sample.influence),
        sample.flags,
        sample.attempt,
    )


def _text(number: float | None) -> str | None:
    # DuckDB 1.5 takes a NaN in a list parameter for NULL; as text it stays what it is.
    return None if number is None else repr(float(number))
