"""Calls, turns, tokens and seconds by role, counted by hand."""

from __future__ import annotations

import math

from gradwatch.metrics import metric, resolve
from gradwatch.quantities.calls import Call, measure_calls

CALLS = [
    Call("verifier", "a", 0, 10, 2, 0.5),
    Call("search", "a", 1, 20, 8, 1.5),
    Call("verifier", "a", 2, 30, 2, 0.5),
    Call("verifier", "b", 0, 10, 6),
]


def test_a_role_is_told_by_its_calls() -> None:
    assert measure_calls(CALLS)["verifier"] == {
        "calls": 3.0,
        "call_share": 0.75,
        "calls_per_trajectory": 1.5,
        "trajectory_share": 1.0,
        "turns/mean": 1.5,
        "turns/max": 2.0,
        "prompt_tokens": 50.0,
        "prompt_length/mean": 50 / 3,
        "prompt_length/max": 30.0,
        "output_tokens": 10.0,
        "response_length/mean": 10 / 3,
        "response_length/max": 6.0,
        "call_seconds": 1.0,
        "call_seconds/mean": 0.5,
        "call_seconds/max": 0.5,
    }


def test_a_role_that_is_called_less_and_less_shows_in_its_share() -> None:
    got = measure_calls(CALLS)["search"]
    assert (got["call_share"], got["calls_per_trajectory"], got["trajectory_share"]) == (0.25, 0.5, 0.5)


def test_a_declared_role_that_was_not_called_has_0_calls_and_nothing_else() -> None:
    assert measure_calls(CALLS, ["verifier", "answer"])["answer"] == {"calls": 0.0}
    assert measure_calls([], ["answer"]) == {"answer": {"calls": 0.0}, "": {"calls": 0.0}}


def test_what_is_not_known_is_absent() -> None:
    got = measure_calls([Call("search", "a", seconds=math.nan)])["search"]
    assert set(got) == {"calls", "call_share", "calls_per_trajectory", "trajectory_share", "turns/mean", "turns/max"}


def test_several_calls_in_one_turn_are_one_turn() -> None:
    got = measure_calls([Call("generator", "a", 0), Call("generator", "a", 0), Call("generator", "a", 1)])["generator"]
    assert (got["calls"], got["turns/mean"]) == (3.0, 2.0)


def test_all_calls_stand_under_the_empty_role() -> None:
    got = measure_calls([*CALLS, Call("", "b", 1)])
    assert set(got) == {"verifier", "search", ""}
    assert (got[""]["calls"], got[""]["call_share"]) == (5.0, 1.0)


def test_every_number_is_in_the_catalogue() -> None:
    assert all(metric(resolve(key).metric) for numbers in measure_calls(CALLS).values() for key in numbers)
