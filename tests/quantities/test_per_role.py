"""Sums and moments by role against plain Python."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.errors import SettingsError
from gradwatch.quantities.per_role import join_readings, mean_by_role, moments_reading, owners_of, reading_of, sum_by_role
from gradwatch.quantities.roles import UNASSIGNED, Speaker

NAMES = ("solver", "verifier")
FLOATS = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FLOATS, st.integers(-1, 2), st.booleans()), max_size=12))
def test_moments_equal_those_of_plain_python(rows: list[tuple[float, int, bool]]) -> None:
    values = torch.tensor([value for value, _, _ in rows], dtype=torch.float64)
    roles = torch.tensor([role for _, role, _ in rows], dtype=torch.int64)
    counted = torch.tensor([there for _, _, there in rows], dtype=torch.bool)
    got = moments_reading("x", values, owners_of(roles, NAMES, counted)).read()
    for index, name in ((0, "solver"), (1, "verifier"), (None, "")):
        own = [value for value, role, there in rows if there and index in (role, None)]
        finite = [value for value in own if math.isfinite(value)]
        if not own:
            assert name not in got
            continue
        shown = (statistics.fmean(finite), statistics.pstdev(finite), min(finite), max(finite)) if finite else [math.nan] * 4
        expected = dict(zip(("x/mean", "x/std", "x/min", "x/max"), shown, strict=True))
        assert got[name] == pytest.approx(
            {**expected, "x/count": len(own), "x/nonfinite": len(own) - len(finite)}, rel=1e-9, abs=1e-7, nan_ok=True
        )


def test_thirteen_times_the_same_reward_has_no_deviation() -> None:
    """Their float32 deviation is 6e-8, of which a normalisation makes advantages of .15."""
    got = moments_reading("x", torch.full((13,), 0.99, dtype=torch.float64), owners_of(None, (), torch.ones(13))).read()
    assert (got[""]["x/std"], got[""]["x/mean"]) == (0.0, 0.99)


def test_a_nan_stays_in_the_role_that_owns_it() -> None:
    owners = owners_of(torch.tensor([0, 1, 1, -1]), NAMES, torch.tensor([1, 1, 1, 0]))
    values = torch.tensor([math.nan, 1.0, 2.0, math.inf])
    assert sum_by_role(values, owners).tolist() == pytest.approx([math.nan, 3.0, math.nan], nan_ok=True)
    assert mean_by_role(values, owners).tolist() == pytest.approx([math.nan, 1.5, math.nan], nan_ok=True)


def test_names_that_are_equal_are_one_role_and_an_empty_name_is_none() -> None:
    speakers = (Speaker("solver", "solver-0"), Speaker("solver", "solver-1"), Speaker("verifier"), UNASSIGNED)
    owners = owners_of(torch.tensor([0, 1, 2, 3]), [one.role for one in speakers], torch.ones(4))
    got = reading_of({"x": sum_by_role(torch.tensor([1.0, 2.0, 4.0, 8.0]), owners)}, owners).read()
    assert got == {"solver": {"x": 3.0}, "verifier": {"x": 4.0}, "": {"x": 15.0}}


def test_a_role_without_values_is_absent() -> None:
    owners = owners_of(torch.tensor([0, 7, -5]), NAMES, torch.ones(3))
    assert set(moments_reading("x", torch.ones(3), owners).read()) == {"solver", ""}


def test_squares_of_half_precision_do_not_overflow() -> None:
    got = moments_reading("x", torch.tensor([60000.0, -60000.0], dtype=torch.float16), owners_of(None, (), torch.ones(2))).read()
    assert got[""]["x/std"] == pytest.approx(float(torch.tensor(60000.0, dtype=torch.float16)))


def test_joined_readings_are_read_as_one_and_must_be_of_the_same_roles() -> None:
    owners = owners_of(torch.tensor([0, 1]), NAMES, torch.ones(2))
    one, other = (moments_reading(key, torch.ones(2), owners, ["mean"]) for key in ("a", "b"))
    assert join_readings(one, other).read()["solver"] == {"a/mean": 1.0, "b/mean": 1.0}
    with pytest.raises(SettingsError, match="same roles"):
        join_readings(one, moments_reading("c", torch.ones(2), owners_of(None, (), torch.ones(2))))


@pytest.mark.parametrize(
    ("roles", "names", "said"),
    [
        (torch.zeros(3, dtype=torch.int64), NAMES, r"shape \(3,\)"),
        (torch.zeros(2), NAMES, "whole numbers"),
        (torch.zeros(2, dtype=torch.bool), NAMES, "whole numbers"),
        (torch.zeros(2, dtype=torch.int64), (), "roles without names"),
    ],
)
def test_roles_that_cannot_be_read_are_refused_with_a_sentence(roles: torch.Tensor, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        owners_of(roles, names, torch.ones(2))
