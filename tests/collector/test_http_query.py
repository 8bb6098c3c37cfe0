"""A collector that is asked over HTTP answers as its own store does, to the last bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from collector.conftest import Served
from collector.points import LOSS, batch_of, bits, block_of, exact, number

from gradwatch.checkpoints.selection import best_of_run
from gradwatch.client.http_query import HttpQuery
from gradwatch.collector.access import Access
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.schema import Checkpoint, Event, Sample, Selection, Series
from gradwatch.wire import OpenRun

SOLVER = Series("reward", "solver/reward", role="solver")
EVAL = Series("accuracy", "eval/accuracy", stream="eval")
ODD = "a run/../?x=1&ä %"


@pytest.fixture(scope="module")
def query(shared: Served) -> Any:
    collector = shared.collector
    strange = [0.5, number(0x7FF8_0000_0000_BEEF), number(0xFFF8_0000_0000_0001), math.inf, -math.inf, -0.0, 5e-324]
    saved = [Checkpoint(step=2, uri="out/2", metrics={"x": math.nan})]
    said = [Sample(step=1, role="solver", output="4", rewards={"a": math.inf, "b": math.nan}, advantage=math.nan), Sample(step=2)]
    noted = [Event(kind="note", message="x", step=3, wall_time=5.0, facts={"a": [1, {"b": None}]})]
    collector.submit("r", batch_of(block_of(LOSS, strange), "a", checkpoints=saved, samples=said, events=noted)).result(20)
    collector.open(OpenRun(id="r", process="q", launch="second", config={"lr": 1e-6}))
    collector.submit("r", batch_of(block_of(LOSS, [0.25] * 30), "b", process="q")).result(20)
    collector.submit("r", batch_of(block_of(SOLVER, [1.0, 2.0]), "c", process="q")).result(20)
    collector.submit("r", batch_of(block_of(EVAL, [0.1, 0.9, 0.3]), "d", process="q")).result(20)
    assert collector.watching.wait_until_judged(20)
    with HttpQuery(shared.url) as one:
        yield one


def test_records_are_the_same(query: HttpQuery, shared: Served) -> None:
    own = shared.collector
    for name in ("state", "attempts", "spans", "samples", "checkpoints", "findings", "events", "best"):
        assert repr(getattr(query, name)("r")) == repr(getattr(own, name)("r")), name
    assert query.states() == own.states()
    assert query.states("elsewhere") == []
    assert query.best("r") == best_of_run(query, "r")


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(metrics=("loss", "accuracy")),
        Selection(metrics=()),
        Selection(roles=("", "solver")),
        Selection(roles=()),
        Selection(metrics=(*(f"metric {at} of a long name" for at in range(5000)), "loss"), attempt=1),
        Selection(stream="eval", attempt=2),
        Selection(first_step=2, last_step=5),
        Selection(attempt=2, buckets=3),
        Selection(metrics=("a&b=ä",)),
    ],
)
def test_curves_are_the_same(query: HttpQuery, shared: Served, selection: Selection) -> None:
    assert list(map(exact, query.curves("r", selection))) == list(map(exact, shared.collector.curves("r", selection)))


def test_traces_and_points_are_the_same(query: HttpQuery, shared: Served) -> None:
    wanted = {SOLVER, *(one.series for one in query.spans("r") if one.series.attempt == 1)}
    theirs, own = list(query.traces("r", wanted)), list(shared.collector.traces("r", wanted))
    assert [(one.series, list(one.steps), bits(one.values)) for one in theirs] == [
        (one.series, list(one.steps), bits(one.values)) for one in own
    ]
    points = [(point.series, point.step, *bits([point.value])) for _, block in query.replay("r", size=7) for point in block]
    assert points == [
        (point.series, point.step, *bits([point.value])) for _, block in shared.collector.replay("r") for point in block
    ]


def test_samples_are_picked_the_same_way(query: HttpQuery, shared: Served) -> None:
    for asked in ({"step": 1}, {"role": ""}, {"role": "solver", "limit": 1}, {"limit": 0}):
        assert repr(query.samples("r", **asked)) == repr(shared.collector.samples("r", **asked)), asked


def test_a_run_of_any_name_can_be_asked_for(query: HttpQuery, shared: Served) -> None:
    odd = ODD.replace("/", "-")
    shared.collector.open(OpenRun(id=odd, process="p"))
    assert query.state(odd).info.id == odd
    assert query.curves(odd) == []


def test_an_unknown_run_is_refused(query: HttpQuery) -> None:
    for name in ("state", "attempts", "spans", "curves", "samples", "checkpoints", "findings", "events", "best"):
        with pytest.raises(RefusedError, match="does not exist") as refused:
            getattr(query, name)("nobody")
        assert refused.value.status == 404
    with pytest.raises(RefusedError):
        query.curves("nobody", Selection(metrics=()))


def test_a_key_is_sent_and_a_wrong_one_refused(collector: Collector) -> None:
    with running(create_app(collector, Access("127.0.0.1", "secret"))) as url:
        with HttpQuery(url, "secret") as query:
            assert query.states() == []
        with HttpQuery(url, "wrong") as query, pytest.raises(RefusedError, match="asks for its key"):
            query.states()


def test_nobody_there_is_told() -> None:
    with HttpQuery("http://127.0.0.1:9") as query, pytest.raises(UnavailableError, match="gradwatch up"):
        query.states()
