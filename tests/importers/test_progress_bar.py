"""Bars are read, the training's is told from the others, and its clears give the rows their steps."""

from __future__ import annotations

import pytest

from gradwatch.importers.bar_steps import MAX_HELD, BarSteps
from gradwatch.importers.base import Row
from gradwatch.importers.progress_bar import Bar, TrainingBar, parse_bar

BLANK = " " * 40


def drawn(n: int, total: int = 20, name: str = "") -> str:
    title = f"{name}: " if name else ""
    return f"{title} {100 * n // total}%|██        | {n}/{total} [00:17<12:05,  3.72s/it]"


def steps_of(*events: str | float) -> list[int | None]:
    """The steps of rows with these epochs (numbers), among drawings, blanks and `nested` blanks of a console."""
    steps, rows = BarSteps(), []
    for event in events:
        if isinstance(event, float):
            rows += steps.see_row(Row({"loss": 1.0, "epoch": event}))
        elif event.isspace():
            steps.see_blank(event, opens_line=False, returns=True)
        else:
            rows += steps.see_bar(event)
    rows += steps.finish()
    assert [row.values["epoch"] for row in rows] == [event for event in events if isinstance(event, float)]
    return [row.step for row in rows]


@pytest.mark.parametrize(
    ("segment", "bar"),
    [
        ("  2%|▎         | 5/200 [00:17<12:05,  3.72s/it]", Bar("", 5, 200)),
        ("Training Progress:  64%|██████▍   | 192/300 [1:45:38<57:52, 32.15s/it]", Bar("Training Progress", 192, 300)),
        ("Epoch 1/6:  50%|█████▌    | 31/62 [02:28<02:31,  4.87s/it]", Bar("Epoch 1/6", 31, 62)),
        (" 100% ━━━━━━━━ 51,200/50,000  [ 0:11:01 < 0:00:00 , 59 it/s ]", Bar("", 51200, 50000)),
        ("  5%|▍ | 9/20 [03:12<1:06, 1.98s/it]Adding…100%|██| 10/20 [03:13<00:00, 2s/it]", Bar("Adding…", 10, 20)),
        ("  2%|▎ | 5/200 [00:17<12:05,  3.72s/it]{'loss': 1}", Bar("", 5, 200)),
    ],
)
def test_a_bar_is_read(segment: str, bar: Bar) -> None:
    assert parse_bar(segment) == bar


@pytest.mark.parametrize("segment", ["model.safetensors:  9%|▉ | 254M/2.5G [00:01<00:02]", "100%|", "| loss | 5/10 |", "50% of"])
def test_what_counts_no_steps_is_no_bar(segment: str) -> None:
    assert parse_bar(segment) is None


@pytest.mark.parametrize("name", ["Loading checkpoint shards", "Map", "Generating train split", "Processed prompts"])
def test_a_bar_of_another_job_is_not_the_trainings(name: str) -> None:
    bar = TrainingBar()
    bar.see_bar(Bar(name, 1, 2))
    assert bar.step is None


@pytest.mark.parametrize("name", ["", "Training", "Training Progress", "train", "Epoch 1/1"])
def test_a_bar_of_training_or_of_nothing_is_the_trainings(name: str) -> None:
    bar = TrainingBar()
    bar.see_bar(Bar(name, 1, 2))
    assert bar.step == 1


def test_epoch_bars_count_on() -> None:
    bar = TrainingBar()
    bar.see_bar(Bar("Epoch 1/3", 10, 10))
    bar.see_bar(Bar("Epoch 2/3", 4, 10))
    assert (bar.step, bar.generation) == (14, 0)


def test_epoch_bars_that_start_at_zero_count_on() -> None:
    bar = TrainingBar()
    bar.see_bar(Bar("Epoch 0", 10, 10))
    bar.see_bar(Bar("Epoch 1", 4, 10))
    assert bar.step == 14


def test_a_finished_bar_that_nobody_logged_under_makes_way() -> None:
    bar = TrainingBar()
    bar.see_bar(Bar("", 3, 3))
    bar.see_bar(Bar("", 1, 100))
    bar.see_bar(Bar("", 2, 100))
    assert bar.step == 2


def test_an_evaluations_bar_does_not_take_over() -> None:
    assert steps_of(drawn(5), BLANK, 0.25, drawn(5), drawn(1, 7), drawn(7, 7), drawn(6), drawn(10), BLANK, 0.5) == [
        5,
        10,
    ]


def test_an_evaluations_log_shares_the_trainings_step() -> None:
    log, evaluation = (drawn(5), BLANK, 0.25, drawn(5)), (drawn(7, 7), BLANK, 0.25, drawn(5), drawn(7, 7))
    assert steps_of(*log, *evaluation, drawn(6), drawn(10), BLANK, 0.5, drawn(10)) == [5, 5, 10]


def test_a_row_between_clear_and_redraw_has_the_bars_step() -> None:
    assert steps_of(drawn(5), BLANK, 0.25, drawn(5), drawn(6), drawn(10), BLANK, 0.5, drawn(10)) == [5, 10]


def test_the_redraw_says_the_step_where_the_bar_was_stale() -> None:
    assert steps_of(drawn(3), BLANK, 0.25, drawn(5), drawn(8), BLANK, 0.5, drawn(10)) == [5, 10]


def test_rows_that_come_in_bulk_after_all_clears_are_counted_off() -> None:
    clears = [part for n in (5, 10, 15, 20, 20) for part in (drawn(n), BLANK, drawn(n))]
    assert steps_of(*clears, 0.25, 0.5, 0.75, 1.0, 1.0) == [5, 10, 15, 20, 20]


def test_rows_that_come_before_any_bar_wait_for_their_clears() -> None:
    clears = [part for n in (5, 10, 15) for part in (drawn(n), BLANK, drawn(n))]
    assert steps_of(0.25, 0.5, 0.75, *clears) == [5, 10, 15]


def test_rows_that_run_just_ahead_of_their_clears_keep_their_own() -> None:
    assert steps_of(drawn(5), 0.25, BLANK, drawn(5), drawn(10), 0.5, BLANK, drawn(10), drawn(15), 0.75, BLANK) == [
        5,
        10,
        15,
    ]


def test_a_bar_that_is_never_cleared_gives_where_it_stands() -> None:
    assert steps_of(drawn(5), 0.25, drawn(10), 0.5, drawn(15), 0.75) == [5, 10, 15]


def test_a_second_log_at_one_drawing_belongs_to_the_next_step() -> None:
    assert steps_of(drawn(5), 0.25, 0.3, drawn(7), 0.35) == [5, 6, 7]


def test_rows_in_bulk_under_a_bar_that_was_never_cleared_have_no_step() -> None:
    assert steps_of(drawn(5), drawn(10), drawn(15), drawn(20), 0.25, 0.5, 0.75, 1.0) == [None] * 4


def test_the_clear_of_a_nested_bar_is_no_log() -> None:
    nested = BLANK + "\x0b"
    assert steps_of(drawn(5), drawn(7, 7), nested, drawn(6), drawn(10), BLANK, drawn(10), 0.5) == [10]


def test_a_clear_for_someone_elses_line_is_passed_over_by_the_epoch() -> None:
    logs = [part for n in (200, 300, 400, 600, 800) for part in (drawn(n, 800), BLANK, drawn(n, 800))]
    assert steps_of(*logs, 0.25, 0.5, 0.75, 1.0) == [200, 400, 600, 800]


def test_a_restarted_run_starts_over() -> None:
    first = [part for n in (5, 10) for part in (drawn(n), BLANK, 0.05 * n, drawn(n))]
    assert steps_of(*first, drawn(0), *first) == [5, 10, 5, 10]


def test_what_a_killed_run_had_not_printed_does_not_shift_the_next() -> None:
    lost = [part for n in (5, 10) for part in (drawn(n), BLANK, drawn(n))]
    assert steps_of(*lost, drawn(0), drawn(10), BLANK, 0.5, drawn(10)) == [10]


def test_a_second_trainer_takes_over_when_it_logs() -> None:
    second = [part for n in (2, 4) for part in (drawn(n, 8), BLANK, 0.125 * n, drawn(n, 8))]
    assert steps_of(drawn(20), BLANK, 1.0, drawn(20), *second) == [20, 2, 4]


def test_a_log_without_bars_gives_its_rows_without_steps() -> None:
    assert steps_of(0.25, 0.5) == [None, None]


def test_no_more_than_a_bound_of_rows_is_held() -> None:
    steps = BarSteps()
    out = [len(steps.see_row(Row({"epoch": float(n)}))) for n in range(MAX_HELD + 3)]
    assert sum(out) == MAX_HELD + 3
    assert max(out) == MAX_HELD + 1


def test_a_dict_that_no_trainer_logged_takes_no_clear() -> None:
    steps = BarSteps()
    rows = []
    for n in (5, 10, 15):
        rows += steps.see_bar(drawn(n))
        steps.see_blank(BLANK, opens_line=False, returns=True)
        rows += steps.see_row(Row({"epoch": n / 20}))
        rows += steps.see_row(Row({"reward": 1.0}))
        rows += steps.see_bar(drawn(n))
    assert [row.step for row in rows if "epoch" in row.values] == [5, 10, 15]
