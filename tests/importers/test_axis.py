"""What the step is, and what a step axis that ties, interleaves, restarts or is missing means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.importers.axis import LOOKAHEAD, place, step_key
from gradwatch.importers.base import Row
from gradwatch.importers.source import Source


def placed(rows: Iterable[Row]) -> tuple[list[tuple[int, int, int]], list[str]]:
    """(step, attempt, writer) of every row in file order, and the warnings."""
    source = Source(Path("some.log"))
    places = [(one.step, one.attempt, one.writer) for one in place(rows, source)]
    return places, source.warnings


def rows(steps: Iterable[int], **more: float) -> list[Row]:
    return [Row({"step": float(step), "loss": 1.0, **more}) for step in steps]


def attempts(steps: Iterable[int]) -> list[int]:
    return [attempt for _, attempt, _ in placed(rows(steps))[0]]


def test_a_rising_axis_is_taken_as_it_is() -> None:
    assert placed(rows([0, 10, 20, 25])) == ([(0, 1, 1), (10, 1, 1), (20, 1, 1), (25, 1, 1)], [])


def test_a_restart_opens_an_attempt_and_is_said() -> None:
    places, warnings = placed(rows([*range(0, 100, 10), *range(50, 100, 10)]))
    assert [attempt for _, attempt, _ in places] == [1] * 10 + [2] * 5
    assert warnings == ["the step axis runs back from 90 to 50: read as a restart, attempt 2"]


def test_each_restart_opens_another_attempt() -> None:
    steps = [step for _ in range(128) for step in range(40)]
    assert attempts(steps) == [one for one in range(1, 129) for _ in range(40)]


def test_a_single_row_that_lags_stays_in_its_attempt() -> None:
    assert attempts([100, 200, 300, 250, 400, 500]) == [1] * 6


def test_a_last_evaluation_under_an_older_step_is_no_restart() -> None:
    assert attempts([*range(100), 60]) == [1] * 101


def test_rows_of_one_step_that_add_keys_are_one_record() -> None:
    logged = [Row({"step": 1.0, "loss": 1.0}), Row({"step": 1.0, "eval_loss": 2.0}), Row({"step": 2.0, "loss": 1.0})] * 1
    assert placed(logged) == ([(1, 1, 1), (1, 1, 1), (2, 1, 1)], [])


def test_several_rows_a_step_become_a_stream_a_writer() -> None:
    places, warnings = placed(rows(step for step in range(20) for _ in range(4)))
    assert places == [(step, 1, writer) for step in range(20) for writer in (1, 2, 3, 4)]
    assert "several writers" in warnings[0]


def test_two_interleaved_writers_are_kept_apart() -> None:
    steps = [0, 10, 0, 20, 10, 30, 20, 40, 30, 50, 40, 60, 50]
    places, warnings = placed(rows(steps))
    assert [step for step, _, writer in places if writer == 1] == [0, 10, 20, 30, 40, 50, 60]
    assert [step for step, _, writer in places if writer == 2] == [0, 10, 20, 30, 40, 50]
    assert {attempt for _, attempt, _ in places} == {1}
    assert warnings


def test_a_step_repeated_once_is_a_rewrite_not_a_writer() -> None:
    assert placed(rows([*range(30), 29, *range(30, 60)]))[0][30] == (29, 1, 1)


def test_without_a_step_the_rows_are_numbered_and_that_is_said() -> None:
    places, warnings = placed([Row({"loss": 1.0}) for _ in range(3)])
    assert [step for step, _, _ in places] == [1, 2, 3]
    assert warnings == ["no step in the log: steps are the rows' numbers"]


def test_the_formats_own_step_wins() -> None:
    assert placed([Row({"step": 7.0, "loss": 1.0}, step=3)])[0] == [(3, 1, 1)]


def test_a_row_without_the_step_belongs_to_the_step_before() -> None:
    logged = [*rows([1, 2]), Row({"eval_loss": 1.0}), *rows([3])]
    assert [step for step, _, _ in placed(logged)[0]] == [1, 2, 2, 3]


def test_an_evaluation_may_call_the_step_by_another_name() -> None:
    logged = [Row({"iter": 10.0 * at, "loss": 1.0}) for at in range(1, 6)]
    logged.insert(3, Row({"step": 35.0, "val loss": 1.0}))
    assert [step for step, _, _ in placed(logged)[0]] == [10, 20, 30, 35, 40, 50]
    assert all("step" not in row.values for row in logged)


def test_a_step_that_starts_again_with_every_epoch_gives_way_to_a_global_one() -> None:
    logged = [Row({"step": at % 50.0, "global_step": float(at), "loss": 1.0}) for at in range(200)]
    assert step_key(logged) == "global_step"


def test_rows_within_an_epoch_are_no_writers() -> None:
    logged = [Row({"epoch": float(at // 50), "batch": at % 50.0, "loss": 1.0}) for at in range(500)]
    places, warnings = placed(logged)
    assert [step for step, _, _ in places] == list(range(1, 501))
    assert {(attempt, writer) for _, attempt, writer in places} == {(1, 1)}
    assert warnings


def test_an_evaluation_that_is_written_late_is_no_restart() -> None:
    logged = []
    for at in range(0, 100, 5):
        logged += [Row({"step": float(at), "loss": 1.0})]
        if at >= 10:
            logged += [Row({"step": at - 5.0, f"eval/{name}/accuracy": 1.0}) for name in ("a", "b")]
    places, warnings = placed(logged)
    assert {attempt for _, attempt, _ in places} == {1}
    assert not warnings


def test_evaluations_between_two_writers_keep_their_stream() -> None:
    logged = []
    for at in range(40):
        logged += [Row({"step": float(at), "loss": 1.0}), Row({"step": float(at), "loss": 2.0})]
        logged += [Row({"step": float(at), "eval/accuracy": 1.0})]
    assert {(next(iter(one.row.values)), one.writer) for one in place(logged, Source(Path("x")))} == {
        ("loss", 1),
        ("loss", 2),
        ("eval/accuracy", 1),
    }


def test_settings_before_the_first_row_are_no_step() -> None:
    logged = [Row({}, config={"lr": 1}), *rows(range(-20, 5))]
    assert {attempt for _, attempt, _ in placed(logged)[0]} == {1}


def test_a_constant_key_is_no_step() -> None:
    logged = [Row({"total_timesteps": 100_000.0, "timestep": 100.0 * at, "reward": 1.0}) for at in range(5)]
    assert step_key(logged) == "timestep"


def test_an_epoch_in_fractions_is_no_step() -> None:
    assert step_key([Row({"epoch": at / 10, "loss": 1.0}) for at in range(5)]) is None


def test_whole_epochs_are_steps_where_nothing_else_is() -> None:
    assert step_key([Row({"epoch": float(at), "loss": 1.0}) for at in range(5)]) == "epoch"


def test_each_axis_of_a_file_is_judged_on_its_own() -> None:
    logged = [Row({name: 1.0}, step=step, axis=name) for step in range(50) for name in ("reward", "loss")]
    logged += [Row({"loss": 1.0}, step=step, axis="loss") for step in range(50)]
    by_axis = {(one.row.axis, one.attempt) for one in place(logged, Source(Path("x")))}
    assert by_axis == {("reward", 1), ("loss", 1), ("loss", 2)}


def test_steps_of_any_size_and_kind_are_survived() -> None:
    odd = [Row({"step": value, "loss": 1.0}) for value in (1e300, float("nan"), float("inf"), -5.0, 2.5, 3.0)]
    assert len(placed(odd)[0]) == len(odd)


@given(st.lists(st.integers(-5, 40), max_size=3 * LOOKAHEAD))
@settings(max_examples=60, deadline=None)
def test_every_row_is_placed_once_and_in_order(steps: list[int]) -> None:
    places, _ = placed(rows(steps))
    assert [step for step, _, _ in places] == steps or len(set(steps)) < 2 or step_key(rows(steps[:LOOKAHEAD])) is None
    assert len(places) == len(steps)
