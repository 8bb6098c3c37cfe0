"""What every store engine must do; a test module subclasses `StoreContract` and provides its `store` fixture."""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwatch.errors import StoreError
from gradwatch.schema import Block, Curve, Finding, Point, RunInfo, Sample, Selection, Series
from gradwatch.store.base import Store, WatchState

NAN = float("nan")
INF = float("inf")
LOSS = Series("loss", source_key="train/loss")
NORM = Series("grad_norm", role="solver", agent="solver-0", policy="shared", scope="lm_head", stat="max", rank=3)


def quiet_nan(payload: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8 << 48 | payload))
    return float(value)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def block_of(points: Iterable[Point]) -> Block:
    block = Block()
    for point in points:
        block.add(point.series, point.step, point.value, point.wall_time, point.flags)
    return block


def losses(*values: float, first_step: int = 0) -> Block:
    return block_of(Point(LOSS, first_step + i, value) for i, value in enumerate(values))


def exact(point: Point) -> tuple[Series, int, bytes, bytes, int]:
    """The point in a form that compares NaNs by their bits; wall time only knows one NaN."""
    wall_time = point.wall_time if point.wall_time == point.wall_time else NAN
    return point.series, point.step, bits(point.value), bits(wall_time), point.flags


def replayed(store: Store, run: str, after: int = 0, size: int = 50_000) -> list[Point]:
    return [point for _, block in store.replay(run, after, size) for point in block]


def finding(**changes: object) -> Finding:
    fields: dict[str, object] = {
        "kind": "norm_spike",
        "detector": "norm_spike",
        "severity": "warning",
        "metric": "grad_norm",
        "start_step": 10,
        "end_step": 12,
        "message": "grad_norm rose 9-fold at step 10",
        "suggestion": "clip",
    }
    return Finding(**(fields | changes))  # type: ignore[arg-type]


axis = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
int64 = st.integers(-(2**63), 2**63 - 1)
serieses = st.builds(
    Series,
    metric=st.sampled_from(["loss", "grad_norm", "ent'ropy"]),
    source_key=axis,
    stream=st.sampled_from(["train", "eval"]),
    attempt=st.integers(1, 3),
    role=axis,
    rank=st.integers(-1, 2),
)
values = st.floats() | st.sampled_from([NAN, INF, -INF, -0.0, 5e-324]) | st.integers(0, 2**51 - 1).map(quiet_nan)
points = st.builds(Point, series=serieses, step=int64, value=values, wall_time=st.floats(), flags=st.integers(0, 255))
batches = st.lists(st.lists(points, max_size=12), max_size=4)


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("a subclass provides the store")

    @pytest.fixture
    def run(self, store: Store) -> str:
        store.put_run(RunInfo("r1", "dr-mas"))
        return "r1"

    def test_a_run_comes_back_as_it_was_put(self, store: Store) -> None:
        run = RunInfo("r1", "dr-mas", "search", "/logs/a", "jsonl", 7, 12.5, {"lr": 1e-6, "n": {"a": [1]}}, ("cut",))
        store.put_run(run)
        assert store.runs() == [run]

    def test_a_configuration_may_hold_nan_and_infinities(self, store: Store) -> None:
        store.put_run(RunInfo("r1", "dr-mas", config={"clip": INF, "kl": NAN}))
        config = store.runs()[0].config
        assert config["clip"] == INF
        assert math.isnan(config["kl"])

    def test_putting_a_run_again_replaces_what_is_known_of_it(self, store: Store, run: str) -> None:
        store.append(run, losses(1.0))
        store.put_run(RunInfo(run, "renamed", rows=1))
        assert store.runs() == [RunInfo(run, "renamed", rows=1)]
        assert len(replayed(store, run)) == 1

    def test_runs_come_newest_first_and_by_project(self, store: Store) -> None:
        for i, project in enumerate(["a", "b", "a"]):
            store.put_run(RunInfo(f"r{i}", "n", project, created=float(i)))
        assert [run.id for run in store.runs()] == ["r2", "r1", "r0"]
        assert [run.id for run in store.runs("a")] == ["r2", "r0"]
        assert store.runs("c") == []

    @pytest.mark.parametrize(
        "ask",
        [
            lambda store: store.append("ghost", losses(1.0)),
            lambda store: store.replay("ghost"),
            lambda store: store.curves("ghost"),
            lambda store: store.samples("ghost"),
            lambda store: store.put_watch("ghost", WatchState(), []),
            lambda store: store.watch("ghost"),
            lambda store: store.findings("ghost"),
        ],
        ids=["append", "replay", "curves", "samples", "put_watch", "watch", "findings"],
    )
    def test_an_unknown_run_is_refused_with_what_to_do(self, store: Store, ask: Callable[[Store], object]) -> None:
        with pytest.raises(StoreError, match="no run 'ghost': create it with put_run"):
            ask(store)

    def test_sequence_numbers_count_a_runs_points(self, store: Store, run: str) -> None:
        store.put_run(RunInfo("r2", "other"))
        assert store.append(run, losses(1.0, 2.0)) == 2
        assert store.append("r2", losses(1.0)) == 1
        assert store.append(run, losses(3.0)) == 3

    def test_runs_do_not_see_each_other(self, store: Store, run: str) -> None:
        store.put_run(RunInfo("r2", "other"))
        store.append(run, losses(1.0, 2.0))
        store.append("r2", losses(7.0), [Sample(0)])
        assert [point.value for point in replayed(store, run)] == [1.0, 2.0]
        assert [curve.values for curve in store.curves("r2")] == [[7.0]]
        assert store.samples(run) == []

    @pytest.mark.parametrize("size", [1, 7, 100, 10**20])
    def test_replay_yields_every_point_in_sequence_order_whatever_the_size(self, store: Store, run: str, size: int) -> None:
        logged = [Point((LOSS, NORM)[i % 2], (i * 37) % 20, float(i)) for i in range(100)]
        store.append(run, block_of(logged[:30]))
        store.append(run, block_of(logged[30:]))
        blocks = list(store.replay(run, size=size))
        assert [exact(point) for _, block in blocks for point in block] == [exact(point) for point in logged]
        assert [last for last, _ in blocks] == [*range(size, 100, size), 100]

    def test_replay_goes_on_after_a_sequence_number(self, store: Store, run: str) -> None:
        store.append(run, losses(0.0, 1.0, 2.0, 3.0))
        assert [point.value for point in replayed(store, run, after=2, size=1)] == [2.0, 3.0]
        assert list(store.replay(run, after=4)) == []

    def test_the_last_write_of_a_step_wins_in_curves_and_replay_keeps_all(self, store: Store, run: str) -> None:
        store.append(run, block_of([Point(LOSS, 2, 1.0, 10.0), Point(LOSS, 1, 2.0, 11.0), Point(LOSS, 2, 3.0, 12.0)]))
        store.append(run, block_of([Point(LOSS, 1, INF, 13.0), Point(LOSS, 0, 0.0, 14.0)]))
        assert store.curves(run) == [Curve(LOSS, [0, 1, 2], [0.0, INF, 3.0], [14.0, 13.0, 12.0])]
        assert [point.value for point in replayed(store, run)] == [1.0, 2.0, 3.0, INF, 0.0]

    def test_a_nan_that_overwrites_a_number_wins(self, store: Store, run: str) -> None:
        store.append(run, block_of([Point(LOSS, 1, 2.0, 5.0), Point(LOSS, 1, NAN, NAN)]))
        (curve,) = store.curves(run)
        assert math.isnan(curve.values[0])
        assert math.isnan(curve.wall_times[0])

    def test_values_keep_their_bits(self, store: Store, run: str) -> None:
        odd = [NAN, -NAN, quiet_nan(0x123), INF, -INF, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1]
        store.append(run, losses(*odd))
        assert [bits(point.value) for point in replayed(store, run)] == [bits(value) for value in odd]
        assert [bits(value) for value in store.curves(run)[0].values] == [bits(value) for value in odd]

    def test_curves_of_named_metrics_only(self, store: Store, run: str) -> None:
        store.append(run, block_of([Point(LOSS, 1, 1.0), Point(NORM, 1, 2.0)]))
        assert [curve.series for curve in store.curves(run)] == [LOSS, NORM]
        assert [curve.series for curve in store.curves(run, Selection(metrics=("grad_norm", "absent")))] == [NORM]
        assert store.curves(run, Selection(metrics=())) == []

    def test_an_empty_append_adds_nothing(self, store: Store, run: str) -> None:
        assert store.append(run, Block()) == 0
        assert replayed(store, run) == []
        assert store.curves(run) == []

    def test_a_block_may_grow_after_it_was_appended(self, store: Store, run: str) -> None:
        block = losses(1.0)
        store.append(run, block)
        block.add(LOSS, 1, 2.0)
        assert store.append(run, block) == 3

    def test_a_retried_batch_adds_nothing(self, store: Store, run: str) -> None:
        assert store.append(run, losses(1.0), [Sample(0)], "b1") == 1
        assert store.append(run, losses(2.0), [Sample(1)], "b2") == 2
        assert store.append(run, losses(1.0), [Sample(0)], "b1") == 2
        assert store.append(run, losses(3.0)) == 3
        assert [point.value for point in replayed(store, run)] == [1.0, 2.0, 3.0]
        assert [sample.step for sample in store.samples(run)] == [0, 1]

    def test_a_batch_id_belongs_to_its_run(self, store: Store, run: str) -> None:
        store.put_run(RunInfo("r2", "other"))
        store.append(run, losses(1.0), batch_id="b1")
        assert store.append("r2", losses(1.0), batch_id="b1") == 1

    def test_samples_come_by_step_and_in_order(self, store: Store, run: str) -> None:
        full = Sample(2, "solver", "solver-1", 3, "g7", "2+2?", "4\x1f‘é’", {"exact": 1.0, "": -INF}, 0.5, 9, 4, True, 0.1, 2)
        bare, wrong = Sample(1, "verifier"), Sample(2, "verifier", output="no", format_valid=False)
        store.append(run, Block(), [full, bare])
        store.append(run, losses(1.0), [wrong])
        assert store.samples(run) == [bare, full, wrong]
        assert store.samples(run, step=2) == [full, wrong]
        assert store.samples(run, role="verifier") == [bare, wrong]
        assert store.samples(run, step=2, role="solver") == [full]

    def test_a_samples_nan_is_not_an_absent_number(self, store: Store, run: str) -> None:
        store.append(run, Block(), [Sample(1, rewards={"exact": NAN}, advantage=NAN)])
        (sample,) = store.samples(run)
        assert math.isnan(sample.rewards["exact"])
        assert sample.advantage is not None
        assert math.isnan(sample.advantage)
        assert sample.influence is None

    def test_a_run_that_was_never_watched_has_the_empty_state(self, store: Store, run: str) -> None:
        assert store.watch(run) == WatchState()
        assert store.findings(run) == []

    def test_the_last_watch_state_comes_back(self, store: Store, run: str) -> None:
        store.put_watch(run, WatchState(3, {"a": b"\x00\xff"}), [])
        store.put_watch(run, WatchState(9, {"a": b"x", "b": b""}), [])
        assert store.watch(run) == WatchState(9, {"a": b"x", "b": b""})

    def test_a_finding_is_extended_not_repeated(self, store: Store, run: str) -> None:
        store.put_watch(run, WatchState(1), [finding()])
        (first,) = store.findings(run)
        store.put_watch(run, WatchState(2), [finding(end_step=20, severity="critical")])
        (extended,) = store.findings(run)
        assert first.status == "open"
        assert first.finding == finding()
        assert extended.finding == finding(end_step=20, severity="critical")
        assert (extended.id, extended.created) == (first.id, first.created)
        assert extended.updated >= first.updated > 0

    def test_a_closed_finding_is_resolved(self, store: Store, run: str) -> None:
        store.put_watch(run, WatchState(1), [finding(), finding(episode=2, start_step=30, closed=True)])
        assert [stored.status for stored in store.findings(run)] == ["open", "resolved"]
        store.put_watch(run, WatchState(2), [finding(closed=True)])
        assert [stored.status for stored in store.findings(run)] == ["resolved", "resolved"]

    def test_findings_come_by_attempt_and_start_step(self, store: Store, run: str) -> None:
        late, early = finding(start_step=50), finding(start_step=5, kind="nonfinite")
        second = finding(start_step=1, attempt=2)
        store.put_watch(run, WatchState(1), [second, late, early])
        assert [stored.finding for stored in store.findings(run)] == [early, late, second]

    def test_evidence_keeps_nan(self, store: Store, run: str) -> None:
        store.put_watch(run, WatchState(1), [finding(evidence={"values": [1.0, NAN, -INF]})])
        seen = store.findings(run)[0].finding.evidence["values"]
        assert seen[::2] == [1.0, -INF]
        assert math.isnan(seen[1])

    def test_appends_from_many_threads_are_all_kept(self, store: Store, run: str) -> None:
        def add(rank: int) -> None:
            for i in range(10):
                store.append(run, block_of([Point(Series("loss", rank=rank), i, float(i))] * 3))
                store.curves(run)

        threads = [threading.Thread(target=add, args=(rank,)) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(replayed(store, run)) == 120
        assert sorted(curve.series.rank for curve in store.curves(run)) == [0, 1, 2, 3]
        assert store.append(run, Block()) == 120

    def test_closing_twice_does_nothing(self, store: Store) -> None:
        store.close()
        assert store.close() is None  # type: ignore[func-returns-value]

    # Every example has a run of its own in the store, and every engine's class runs this test: both are meant.
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(logged=batches, size=st.integers(1, 9))
    def test_any_points_round_trip(self, store: Store, logged: list[list[Point]], size: int) -> None:
        run = f"any-{len(store.runs())}"
        store.put_run(RunInfo(run, run))
        for batch in logged:
            store.append(run, block_of(batch))
        expected = [exact(point) for batch in logged for point in batch]
        assert [exact(point) for point in replayed(store, run, size=size)] == expected
        last = {(series, step): value for series, step, value, _, _ in expected}
        assert {
            (curve.series, step): bits(value)
            for curve in store.curves(run)
            for step, value in zip(curve.steps, curve.values, strict=True)
        } == last
