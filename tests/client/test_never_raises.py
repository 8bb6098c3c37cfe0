"""After `init`, nothing that a caller does wrong reaches the training; under pytest it does."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from client.scripted import Server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gradwatch
from gradwatch.errors import SettingsError

ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.dates(),
        st.sampled_from(
            [object(), int, torch.tensor(1.0), torch.empty(2, device="meta"), np.array([1, "a"], dtype=object), np.zeros(0)]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.dictionaries(st.one_of(st.text(), st.integers(), st.none()), inner)
    ),
    max_leaves=10,
)


class Spiteful:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no text either")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metrics=ODD, step=ODD, role=ODD)
def test_no_argument_whatever_raises(metrics: Any, step: Any, role: Any, live: Callable[[], None]) -> None:
    live()
    with gradwatch.init(mode="offline", quiet=True) as run:
        run.log({"x": metrics}, step=step)
        run.log(metrics, step=1, role=role)
        run.log({"x": 1.0}, step=step, wall_time=step, stream=role)
        run.log_samples(metrics, step=step)
        run.log_samples([{"prompt": metrics, "rewards": step, "turn": role, "flags": metrics}])
        run.log_checkpoint(metrics, step=step, metrics=role)
        run.log_event(metrics, step=step, facts=role)
        run.log({"loss": 1.0}, step=2)


@pytest.mark.parametrize("step", ["3", 1.5, math.nan, 2**64, True, [], object()])
def test_a_bad_step_is_told_once_and_the_call_skipped(
    step: Any, server: Server, live: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    live()
    with caplog.at_level(logging.ERROR), gradwatch.init(url=server.url) as run:
        run.log({"loss": 1.0}, step=step)
        run.log({"loss": 1.0}, step=step)
        run.log({"loss": 2.0}, step=1)
    assert server.values("loss") == [2.0]
    (record,) = caplog.records
    assert record.exc_info
    assert run.notices.troubles == 2


def test_under_pytest_a_bad_call_raises() -> None:
    with gradwatch.init(mode="offline", quiet=True) as run:
        with pytest.raises(TypeError):
            run.log({"loss": 1.0}, step="3")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="no argument 'steps'"):
            run.log({"loss": 1.0}, steps=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("step", [np.int64(3), torch.tensor(3), 3.0, np.float32(3)])
def test_a_whole_number_of_another_type_is_a_step(step: Any, server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"loss": 1.0}, step=step)
    assert [point.step for point in server.points()] == [3]


def test_objects_that_raise_are_left_out(server: Server, live: Callable[[], None]) -> None:
    live()
    with gradwatch.init(url=server.url) as run:
        run.log({"x": Spiteful(), "loss": 1.0})
        run.log({"y": [Spiteful()], "loss": 2.0})
        run.log_samples([{"prompt": Spiteful()}])
        run.log_event(Spiteful())  # type: ignore[arg-type]
        run.log({"loss": 3.0})
    assert 3.0 in server.values("loss")


def test_a_finished_run_takes_nothing_more_and_says_so(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    run = gradwatch.init(url=server.url)
    run.finish()
    run.finish()
    run.log({"loss": 1.0})
    gradwatch.log({"loss": 1.0})
    assert server.values("loss") == []
    assert sum("is finished in this process" in record.message for record in caplog.records) == 1


def test_made_up_keys_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("gradwatch.client.batches.MOST_SERIES", 10)
    with gradwatch.init(url=server.url) as run:
        for step in range(15):
            run.log({f"key{step}": 1.0, "key0": 2.0}, step=step)
    assert len({point.series.source_key for point in server.points()}) == 10
    assert len(server.values("key0")) == 15
    assert run.dropped == 5
    assert any("more than 10 series" in message for message in server.events("lost_data"))


def test_a_full_queue_drops_the_oldest_and_says_how_many(server: Server) -> None:
    held = threading.Event()
    server.misbehave = lambda request: not held.wait(5) and False
    with gradwatch.init(url=server.url, queue_points=100) as run:
        for step in range(1000):
            run.log({"loss": float(step)}, step=step)
        held.set()
        assert run.flush()
        values = server.values("loss")
        assert values[-1] == 999.0
        assert values == sorted(values)
        assert run.dropped == 1000 - len(values) > 0
    assert any(f"{run.dropped:,} values of steps" in message for message in server.events("lost_data"))


def test_counted_steps_go_on_over_dropped_calls(server: Server) -> None:
    held = threading.Event()
    server.misbehave = lambda request: not held.wait(5) and False
    with gradwatch.init(url=server.url, queue_points=100) as run:
        for number in range(1000):
            run.log({"loss": float(number)})
        held.set()
    assert all(point.step == point.value for point in server.points())
    assert server.points()[-1].step == 999


def test_logging_before_init_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.client.lifecycle._STATE.newest", None)
    with pytest.raises(SettingsError, match=r"call gradwatch.init\(\)"):
        gradwatch.log({"loss": 1.0})
