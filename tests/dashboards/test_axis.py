from __future__ import annotations

import math

import pytest

from gradwatch_dashboards.figures.axis import Axis, value_axis

CALM = [1 + 0.01 * at for at in range(100)]


def test_an_early_giant_does_not_flatten_the_axis_and_is_counted() -> None:
    axis = value_axis([[1e6, *CALM]])
    assert axis.high is not None
    assert axis.high < 4
    assert axis.beyond == 1


def test_the_full_axis_holds_every_value() -> None:
    axis = value_axis([[1e6, *CALM]], "full")
    assert axis.high is not None
    assert (axis.high > 1e6, axis.beyond) == (True, 0)


def test_values_that_do_not_differ_that_much_are_all_within() -> None:
    assert value_axis([[15.0, *CALM]]).beyond == 0


def test_a_jump_from_a_constant_is_shown_whole() -> None:
    assert value_axis([[0.0] * 99 + [1.0]]).beyond == 0
    assert value_axis([[2.0] * 99 + [3.0]]).beyond == 0


def test_non_finite_values_have_no_say() -> None:
    assert value_axis([[1.0, math.nan, math.inf, 2.0, -math.inf]]) == value_axis([[1.0, 2.0]])


def test_the_log_axis_says_what_it_cannot_hold() -> None:
    axis = value_axis([[-1.0, 0.0, 10.0, 1000.0]], "log")
    assert axis.low is not None
    assert axis.high is not None
    assert (axis.low < 10, axis.high > 1000, axis.undrawable) == (True, True, 2)


@pytest.mark.parametrize("kind", ["auto", "full", "log"])
@pytest.mark.parametrize("values", [[], [math.nan], [0.0], [-3.0, -3.0], [1e308, -1e308], [5e-324], [1e308] * 30 + [5e-324]])
def test_any_values_have_a_finite_axis_or_none(kind: str, values: list[float]) -> None:
    axis = value_axis([values], kind)
    assert (axis.low is None) == (axis.high is None)
    if axis.low is not None and axis.high is not None:
        assert math.isfinite(axis.low)
        assert math.isfinite(axis.high)
        assert axis.low < axis.high


def test_nothing_is_an_axis_without_ends() -> None:
    assert value_axis([]) == Axis()
