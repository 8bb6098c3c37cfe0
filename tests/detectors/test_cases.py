"""Every detector says of its own examples what it promises, however the points are cut into blocks."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradwatch.detectors import DETECTORS, Detector
from gradwatch.detectors.base import Case
from gradwatch.schema import Block, Finding, Series

CASES = [
    pytest.param(detector, case, id=f"{detector.name}: {case.name}")
    for detector in DETECTORS
    for case in (*detector.HEALTHY, *detector.SICK)
]


def points(case: Case) -> list[tuple[Series, int, float]]:
    series = Series(case.metric, case.metric, stream=case.stream)
    return [(series, step, value) for step, value in enumerate(case.values, 1)]


def judged(detector: Detector, logged: list[tuple[Series, int, float]], size: int, restart: bool = False) -> list[Finding]:
    state = detector.load(b"")
    latest: dict[str, Finding] = {}
    for start in range(0, len(logged), size):
        block = Block()
        for series, step, value in logged[start : start + size]:
            block.add(series, step, value)
        state, found = detector.update(state, block)
        latest.update((one.fingerprint(), one) for one in found)
        if restart:
            state = detector.load(detector.dump(state))
    return list(latest.values())


@pytest.mark.parametrize(("detector", "case"), CASES)
def test_a_detector_keeps_the_promise_of_its_examples(detector: Detector, case: Case) -> None:
    found = judged(detector, points(case), 10_000)
    assert [(one.severity, one.start_step, one.end_step) for one in found] == list(case.expected)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(("detector", "case"), CASES)
def test_block_boundaries_and_restarts_change_nothing(detector: Detector, case: Case, size: int) -> None:
    assert judged(detector, points(case), size, restart=True) == judged(detector, points(case), 10_000)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: one.name)
def test_update_leaves_the_state_it_was_given_alone(detector: Detector) -> None:
    for case in detector.SICK:
        block = Block()
        for series, step, value in points(case):
            block.add(series, step, value)
        state, _ = detector.update(detector.load(b""), block)
        before = copy.deepcopy(state)
        detector.update(state, block)
        assert repr(state) == repr(before)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: one.name)
def test_a_detector_says_what_it_is(detector: Detector) -> None:
    assert detector.HEALTHY
    assert detector.SICK
    doc = type(detector).__doc__ or ""
    assert all(word in doc for word in ("Why:", "Known false alarms:", "Source:"))
    assert all(one.unit and one.source for one in detector.parameters)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: one.name)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=120),
    size=st.integers(1, 40),
    stream=st.sampled_from(["train", "eval", "rollout"]),
    metric=st.sampled_from(["grad_norm", "reward", "loss", "accuracy"]),
)
@settings(max_examples=40, deadline=None)
def test_any_curve_is_judged_alike_in_any_cut(detector: Detector, values: list[float], size: int, stream: str, metric: str) -> None:
    logged = points(Case("any", metric, tuple(values), stream=stream))
    assert judged(detector, logged, size, restart=True) == judged(detector, logged, 10_000)
