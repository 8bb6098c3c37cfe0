"""What is remembered of a run is what the store would say."""

from __future__ import annotations

import math
from typing import Any

from collector.points import batch_of, exact
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwatch.collector.core import Collector
from gradwatch.collector.memory import RunMemory, highest_steps, last_rows
from gradwatch.schema import Block, Curve, Point, Series
from gradwatch.store.local import LocalStore
from gradwatch.watcher import Detecting
from gradwatch.wire import OpenRun

SERIES = [Series("loss"), Series("reward", role="solver"), Series("accuracy", stream="eval", role="solver")]
POINTS = st.lists(
    st.tuples(st.sampled_from(SERIES), st.integers(-3, 6), st.sampled_from((0.5, -0.0, math.nan, math.inf, -math.inf, 1e300))),
    max_size=20,
)


def to_block(points: list[tuple[Series, int, float]]) -> Block:
    block = Block()
    for at, (series, step, value) in enumerate(points):
        block.add(series, step, value, float(at))
    return block


def shown(points: list[Point]) -> list[Any]:
    return [exact(Curve(one.series, [one.step], [one.value], [one.wall_time])) for one in points]


@given(POINTS)
def test_the_last_write_of_the_highest_step_is_found(points: list[tuple[Series, int, float]]) -> None:
    block = to_block(points)
    wanted: dict[int, int] = {}
    for row, (at, step) in enumerate(zip(block.index, block.step, strict=True)):
        if at not in wanted or step >= block.step[wanted[at]]:
            wanted[at] = row
    if block:
        assert dict(last_rows(block)) == wanted
        steps = {stream: max(s for one, s, _ in points if one.stream == stream) for stream in {one.stream for one, _, _ in points}}
        assert dict(highest_steps(block)) == steps


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(POINTS, st.booleans(), st.booleans()), min_size=1, max_size=5))
def test_memory_and_store_agree_over_attempts_whenever_they_are_asked(store: LocalStore, rounds: list[Any]) -> None:
    collector = Collector(store, judge=Detecting(()))
    collector.start()
    run = f"run-{len(store.runs())}"
    attempt = collector.open(OpenRun(id=run, process="p0")).attempt
    nonfinite: dict[str, int] = {}
    for at, (points, restarts, asks) in enumerate(rounds):
        if restarts:
            attempt = collector.open(OpenRun(id=run, process=f"p{at + 1}")).attempt
        collector.submit(run, batch_of(to_block(points), f"b{at}", process="")).result(20)
        for series, _, value in points:
            nonfinite[series.role] = nonfinite.get(series.role, 0) + (not math.isfinite(value))
        if asks:
            assert shown(collector.latest(run, attempt)) == shown(store.latest(run, attempt))
    assert sorted(shown(collector.latest(run, attempt)), key=repr) == sorted(shown(store.latest(run, attempt)), key=repr)
    assert shown(collector.latest(run, 99)) == []
    assert collector.nonfinite(run) == {role: count for role, count in nonfinite.items() if count}
    collector.close()


def test_what_came_while_the_store_was_asked_wins() -> None:
    memory = RunMemory()
    memory.begin(1)
    memory.add(to_block([(SERIES[0], 5, 0.5)]))
    memory.seed(1, [Point(SERIES[1], 1, 1.0), Point(SERIES[0], 4, 0.25)])
    assert [(one.series, one.step, one.value) for one in memory.newest(1) or []] == [(SERIES[1], 1, 1.0), (SERIES[0], 5, 0.5)]
