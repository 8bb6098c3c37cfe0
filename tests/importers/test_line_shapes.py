"""The memory of line shapes makes reading faster, never different."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.importers.base import Row
from gradwatch.importers.console_pairs import read_pairs
from gradwatch.importers.line_shapes import RECHECK, LineShapes

numbers = st.one_of(
    st.integers(0, 3).map(str),
    st.integers(-10, 10**6).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.sampled_from(["1,234", "12,34", "1,234,567.5", "-0", ".5", "1e-5", "nan", "inf", "007"]),
)
templates = st.sampled_from(
    [
        "step {} loss {} lr {}",
        "2026-03-01 12:00:0{},123 - INFO - step: {}, loss: {}, reward: {}",
        "iter {}: loss {}, time {}ms, mfu {}%",
        "Epoch [{}/{}] Loss: {}",
        "v{} of {}: step={} reward={}",
        "loss={} loss={} reward={}",
        "no row {} here {}",
        "step={} done={}/64 failed={} loss={}",
        "step={} acc=.{} loss=-{}",
    ]
)


def seen(row: Row | None) -> str:
    return "none" if row is None else f"{row.values!r} {row.config!r}"


@given(st.lists(st.tuples(templates, st.lists(numbers, min_size=4, max_size=4)), max_size=40))
@settings(max_examples=150, deadline=None)
def test_a_remembered_line_is_read_as_the_careful_reader_reads_it(lines: list[tuple[str, list[str]]]) -> None:
    memory = LineShapes(read_pairs)
    for template, values in lines:
        line = template.format(*values)
        assert seen(memory.read(line)) == seen(read_pairs(line))


def test_a_trusted_shape_is_read_without_the_careful_reader() -> None:
    asked: list[str] = []

    def careful(line: str) -> Row | None:
        asked.append(line)
        return read_pairs(line)

    memory = LineShapes(careful)
    lines = [f"step {at} loss {at / 7:.4f} reward {at * at}" for at in range(10 * RECHECK)]
    rows = [memory.read(line) for line in lines]
    assert [seen(row) for row in rows] == [seen(read_pairs(line)) for line in lines]
    assert len(asked) < len(lines) // 10  # each new number of digits is a shape of its own


def test_equal_numbers_do_not_mislead_it() -> None:
    memory = LineShapes(read_pairs)
    lines = [
        f"step {at}/9 loss {loss} reward {reward}"
        for at, loss, reward in [(1, 1, 1), (2, 2, 1), (3, 1, 2), (4, 9, 9), (5, 0.5, 7), (6, 7, 5)]
    ]
    assert [seen(memory.read(line)) for line in lines] == [seen(read_pairs(line)) for line in lines]
