"""What a logged value is read as: one number, the moments of many, or nothing with a warning."""

from __future__ import annotations

import argparse
import decimal
import fractions
import logging
import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradwatch.client.batches import Batcher
from gradwatch.client.flag import Flag
from gradwatch.client.notices import Notices
from gradwatch.client.queue import RecordQueue
from gradwatch.client.records import NO_CONTEXT, Metrics
from gradwatch.client.snapshot import snapshot
from gradwatch.client.values import array_moments, moments
from gradwatch.wire import unpack

NAN, INF = math.nan, math.inf
Stats = dict[str, float]


def stored(metrics: Any, spoil: Callable[[], object] = lambda: None) -> dict[str, dict[str, float]]:
    """The values by source key and statistic of one call; `spoil` runs between the call and the background's reading."""
    queue = RecordQueue(10**9, Flag())
    values, waits, weight = snapshot(metrics)
    queue.put(Metrics(values, 0, 0.0, NO_CONTEXT, waits, weight))
    spoil()
    found: dict[str, dict[str, float]] = {}
    for batch in Batcher("p", -1, Notices()).batches(queue.take()):
        for point in unpack(batch.columns) if batch.columns is not None else ():
            found.setdefault(point.series.source_key, {})[point.series.stat] = point.value
    return found


def one(value: Any) -> Stats:
    return stored({"x": value}).get("x", {})


def stats(mean: float, std: float, low: float, high: float, count: int, nonfinite: int = 0) -> Stats:
    return {"mean": mean, "std": std, "min": low, "max": high, "count": count, "nonfinite": nonfinite}


def same(a: Stats, b: Stats) -> bool:
    return a.keys() == b.keys() and all(a[key] == b[key] or (a[key] != a[key] and b[key] != b[key]) for key in a)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (-0.5, -0.5),
        (True, 1.0),
        (2**53 + 1, 9007199254740992.0),
        (10**400, INF),
        (-(10**400), -INF),
        (NAN, NAN),
        (-INF, -INF),
        (np.float32(0.1), 0.10000000149011612),
        (np.float64(NAN), NAN),
        (np.float16(2.5), 2.5),
        (np.int8(-3), -3.0),
        (np.bool_(True), 1.0),
        (np.array(4.0), 4.0),
        (decimal.Decimal("1.5"), 1.5),
        (fractions.Fraction(1, 4), 0.25),
        (torch.tensor(1.25), 1.25),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5),
        (torch.tensor(0.1, dtype=torch.float16), 0.0999755859375),
        (torch.tensor(7), 7.0),
        (torch.tensor(True), 1.0),
        (torch.tensor(INF), INF),
        (torch.tensor(2.0, requires_grad=True) * 2, 4.0),
        (torch.nn.Parameter(torch.tensor(3.0)), 3.0),
    ],
)
def test_one_number_is_one_point(value: Any, number: float) -> None:
    assert same(one(value), {"": number})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2, 3, 6], stats(3.0, math.sqrt(3.5), 1, 6, 4)),
        ((True, False), stats(0.5, 0.5, 0, 1, 2)),
        ([1.0, NAN, 3.0, INF], stats(2.0, 1.0, 1, 3, 4, 2)),
        ([1.0, None, 3.0], stats(2.0, 1.0, 1, 3, 3, 1)),
        ([NAN, -INF], stats(NAN, NAN, NAN, NAN, 2, 2)),
        ([], {"count": 0, "nonfinite": 0}),
        ([[1, 2], [3, [6]]], stats(3.0, math.sqrt(3.5), 1, 6, 4)),
        (range(3), stats(1.0, math.sqrt(2 / 3), 0, 2, 3)),
        (array("d", [1.0, 3.0]), stats(2.0, 1.0, 1, 3, 2)),
        ([1e308, -1e308], stats(0.0, 1e308, -1e308, 1e308, 2)),
        ([1.7e308, 1.7e308], stats(1.7e308, 0.0, 1.7e308, 1.7e308, 2)),
        ([3e-200, 1e-200], stats(2e-200, 1e-200, 1e-200, 3e-200, 2)),
        ([10**400, 1], stats(1.0, 0.0, 1, 1, 2, 1)),
        (np.array([1, 3], dtype=np.uint8), stats(2.0, 1.0, 1, 3, 2)),
        (np.array([[1.0, 3.0]]), stats(2.0, 1.0, 1, 3, 2)),
        (np.array([True, False]), stats(0.5, 0.5, 0, 1, 2)),
        (np.ma.masked_array([1.0, 99.0, 3.0], mask=[0, 1, 0]), stats(2.0, 1.0, 1, 3, 2)),
        (torch.tensor([1.0, 3.0, NAN], dtype=torch.bfloat16), stats(2.0, 1.0, 1, 3, 3, 1)),
        (torch.tensor([1, 3]), stats(2.0, 1.0, 1, 3, 2)),
        (torch.tensor([True, False]), stats(0.5, 0.5, 0, 1, 2)),
        (torch.tensor([1.0, 3.0], requires_grad=True), stats(2.0, 1.0, 1, 3, 2)),
        (torch.tensor([[1.0, 3.0], [9.0, 9.0]])[:1].T, stats(2.0, 1.0, 1, 3, 2)),
        ([torch.tensor(1.0), torch.tensor([3.0]), np.float32(2.0)], stats(2.0, math.sqrt(2 / 3), 1, 3, 3)),
        (torch.empty(0), {"count": 0, "nonfinite": 0}),
    ],
)
def test_many_numbers_become_their_moments(value: Any, expected: Stats) -> None:
    assert same(one(value), expected), one(value)


@pytest.mark.parametrize(
    "value",
    [
        "0.5",
        b"1",
        object(),
        1j,
        float,
        {1, 2},
        ["a"],
        np.array(["a"]),
        np.array([1j]),
        np.datetime64("2026-01-01"),
        torch.empty(2, device="meta"),
        torch.eye(2).to_sparse(),
        torch.tensor([1j]),
        argparse.Namespace(a=1),
    ],
)
def test_what_is_no_number_is_left_out_with_one_warning(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert stored({"x": value, "loss": 1.0}) == {"loss": {"": 1.0}}
    assert [record.message for record in caplog.records if "metric 'x' is left out" in record.message]


def test_nested_mappings_become_keys_with_slashes() -> None:
    assert stored({"a": {"b": {"c": 1.0}, 2: 2.0}, 3: 3.0}).keys() == {"a/b/c", "a/2", "3"}


def test_a_mapping_in_itself_ends() -> None:
    loop: dict[str, Any] = {"x": 1.0}
    loop["self"] = loop
    assert "x" in stored(loop)


def test_a_key_that_no_store_can_hold_is_left_out_or_mended() -> None:
    assert stored({"k" * 1001: 1.0, "": 2.0, "bad\ud800": 3.0}) == {"bad?": {"": 3.0}}


def test_a_statistic_in_the_key_is_kept_beside_the_moment() -> None:
    assert set(stored({"reward/max": [1.0, 2.0]})["reward/max"]) >= {"max_mean", "max"}


def test_the_caller_may_change_what_it_logged() -> None:
    numbers, vector, tensor = [1.0, 3.0], np.array([1.0, 3.0]), torch.tensor([1.0, 3.0])
    inner = {"y": 1.0}

    def spoil() -> None:
        numbers[0] = vector[0] = tensor[0] = inner["y"] = 99.0

    found = stored({"a": numbers, "b": vector, "c": tensor, "d": [tensor, vector], "e": inner, "f": tensor[0]}, spoil)
    assert {key: of.get("max", of.get("")) for key, of in found.items()} == {"a": 3, "b": 3, "c": 3, "d": 3, "e/y": 1, "f": 1}


def test_logging_leaves_the_graph_and_the_gradient_alone() -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (weight**2).sum()
    stored({"loss": loss, "weight": weight})
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 4.0]


@given(st.lists(st.floats(width=64), max_size=20))
def test_numpy_and_plain_python_agree(values: list[float]) -> None:
    mine, theirs = dict(moments(values).items()), dict(array_moments(np.array(values, dtype=float)).items())
    assert mine.keys() == theirs.keys()
    largest = max(map(abs, filter(math.isfinite, values)), default=0.0)
    for key, value in mine.items():
        # Of values that nearly cancel, only the size relative to the largest of them is meant.
        assert value == pytest.approx(theirs[key], rel=1e-12, abs=1e-12 * largest, nan_ok=True)


def test_a_record_that_cannot_be_read_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    queue = RecordQueue(10**9, Flag())
    for step in (0, torch.tensor(math.inf), torch.tensor(2)):
        queue.put(Metrics({"x": 1.0}, step, 0.0, NO_CONTEXT, (), 1))
    batcher = Batcher("p", -1, Notices())
    (batch,) = batcher.batches(queue.take())
    assert batch.columns is not None
    assert list(unpack(batch.columns).step) == [0, 2]
    assert sum(loss.values for loss in batcher.losses) == 1


def test_keys_that_are_no_text_become_it() -> None:
    assert stored({1: 0.5, "a": 1.0, None: 2.0}) == {"1": {"": 0.5}, "a": {"": 1.0}, "None": {"": 2.0}}
    assert stored({1: 0.5, "a": [1.0]})["1"] == {"": 0.5}
