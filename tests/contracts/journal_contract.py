"""What every store engine must do with attempts, checkpoints, events and groups of appends, and when it is asked how runs stand."""

from __future__ import annotations

import math

import pytest
from contracts.store_contract import INF, LOSS, NAN, NORM, block_of, finding, losses, replayed

from gradwatch.schema import Block, Checkpoint, Event, Point, RunInfo, Sample, Selection, Series
from gradwatch.store.base import Append, Appended, WatchState
from gradwatch.store.local import LocalStore
from gradwatch.wire import OpenRun


def opening(process: str, **about: object) -> OpenRun:
    return OpenRun(id="r1", process=process, **about)  # type: ignore[arg-type]


class JournalContract:
    @pytest.fixture
    def store(self) -> LocalStore:
        raise NotImplementedError("a subclass provides the store")

    @pytest.fixture
    def run(self, store: LocalStore) -> str:
        store.put_run(RunInfo("r1", "dr-mas"))
        return "r1"

    def opened(self, store: LocalStore, process: str, **about: object) -> int:
        return store.open_attempt(opening(process, **about)).number

    def statuses(self, store: LocalStore) -> list[str]:
        return [one.status for one in store.attempts("r1")]

    def test_a_process_without_a_launch_opens_an_attempt_of_its_own(self, store: LocalStore, run: str) -> None:
        assert [self.opened(store, process) for process in ("a", "b", "a")] == [1, 2, 1]

    def test_ranks_of_one_launch_share_an_attempt(self, store: LocalStore, run: str) -> None:
        assert [self.opened(store, f"p{rank}", launch="job-7", rank=rank) for rank in range(4)] == [1, 1, 1, 1]

    def test_a_rank_that_comes_again_is_a_restart_and_the_others_join_it(self, store: LocalStore, run: str) -> None:
        first = [self.opened(store, f"a{rank}", launch="job-7", rank=rank) for rank in range(2)]
        again = [self.opened(store, f"b{rank}", launch="job-7", rank=rank) for rank in (1, 0)]
        assert (first, again) == ([1, 1], [2, 2])

    def test_workers_without_a_rank_join_their_launch(self, store: LocalStore, run: str) -> None:
        assert [self.opened(store, process, launch="ray-3") for process in "abc"] == [1, 1, 1]
        assert self.opened(store, "d", launch="ray-4") == 2

    def test_an_unknown_process_means_the_newest_attempt(self, store: LocalStore, run: str) -> None:
        assert store.attempt_of(run, "") == 1
        self.opened(store, "a")
        self.opened(store, "b")
        assert [store.attempt_of(run, process) for process in ("a", "b", "", "x")] == [1, 2, 2, 2]

    def test_an_attempt_ends_with_the_process_that_opened_it_as_the_gravest_of_its_ends(self, store: LocalStore, run: str) -> None:
        for rank in range(3):
            self.opened(store, f"p{rank}", launch="job", rank=rank)
        store.end_process(run, "p1", "failed")
        assert self.statuses(store) == ["running"]
        store.end_process(run, "p0", "finished")
        assert self.statuses(store) == ["failed"]
        assert store.attempts(run)[0].ended is not None

    def test_a_restart_ends_what_died_without_a_word(self, store: LocalStore, run: str) -> None:
        self.opened(store, "a")
        self.opened(store, "b")
        assert self.statuses(store) == ["interrupted", "running"]

    def test_an_end_without_a_process_is_the_newest_attempts(self, store: LocalStore, run: str) -> None:
        self.opened(store, "a")
        self.opened(store, "b")
        store.end_process(run, "", "finished")
        assert self.statuses(store) == ["interrupted", "finished"]

    def test_checkpoints_come_by_attempt_and_step_and_are_replaced(self, store: LocalStore, run: str) -> None:
        late, early = Checkpoint(step=20, uri="b", attempt=1), Checkpoint(step=10, uri="a", attempt=1, metrics={"acc": NAN})
        second = Checkpoint(step=5, uri="c", attempt=2, policy="solver", wall_time=3.0)
        store.put_checkpoints(run, [second, late, early])
        store.put_checkpoints(run, [Checkpoint(step=20, uri="b", attempt=1, metrics={"acc": 0.5})])
        found = store.checkpoints(run)
        assert [(one.attempt, one.step, one.uri) for one in found] == [(1, 10, "a"), (1, 20, "b"), (2, 5, "c")]
        assert math.isnan(found[0].metrics["acc"])
        assert found[1].metrics == {"acc": 0.5}
        assert found[2] == second

    def test_events_come_by_time_and_once(self, store: LocalStore, run: str) -> None:
        first = Event(kind="opened", message="a", attempt=1, wall_time=1.0)
        second = Event(kind="lost_data", message="7 points", attempt=1, step=3, wall_time=2.0, facts={"points": 7})
        store.put_events(run, [second, first])
        store.put_events(run, [second])
        assert store.events(run) == [first, second]

    def test_a_group_of_appends_is_numbered_run_by_run(self, store: LocalStore, run: str) -> None:
        store.put_run(RunInfo("r2", "other"))
        group = [Append(run, losses(1.0, 2.0), [Sample(1)], "a"), Append("r2", losses(3.0)), Append(run, losses(4.0), (), "b")]
        assert store.append_group(group) == [Appended(2), Appended(1), Appended(3)]
        assert [point.value for point in replayed(store, run)] == [1.0, 2.0, 4.0]
        assert [point.value for point in replayed(store, "r2")] == [3.0]
        assert [sample.step for sample in store.samples(run)] == [1]

    def test_known_batches_in_a_group_add_nothing(self, store: LocalStore, run: str) -> None:
        store.append(run, losses(1.0), batch_id="a")
        group = [Append(run, losses(2.0), (), "b"), Append(run, losses(1.0), (), "a"), Append(run, losses(2.0), (), "b")]
        assert store.append_group(group) == [Appended(2), Appended(2, duplicate=True), Appended(2, duplicate=True)]
        assert store.append_group([Append(run, losses(3.0), (), "c")]) == [Appended(3)]
        assert [point.value for point in replayed(store, run)] == [1.0, 2.0, 3.0]

    def test_a_group_may_have_batches_without_points(self, store: LocalStore, run: str) -> None:
        assert store.append_group([Append(run, Block(), (), "a"), Append(run, losses(1.0), (), "b")]) == [Appended(0), Appended(1)]
        assert store.append_group([]) == []

    def test_a_run_that_nobody_opened_is_finished(self, store: LocalStore, run: str) -> None:
        state = store.state(run)
        assert (state.status, state.attempt, state.last_step, state.sequence, state.last_update) == ("finished", 1, None, 0, 0.0)
        assert state.health == "healthy"

    def test_a_runs_state_is_that_of_its_newest_attempt(self, store: LocalStore, run: str) -> None:
        self.opened(store, "a")
        store.append(run, block_of([Point(LOSS, 1000, 1.0)]))
        self.opened(store, "b")
        store.append(run, block_of([Point(Series("loss", attempt=2), 500, 1.0), Point(Series("loss", attempt=2), 20, 1.0)]))
        store.append(run, Block(), [Sample(3)])
        state = store.state(run)
        assert (state.attempt, state.status, state.last_step, state.sequence) == (2, "running", 500, 3)
        assert state.last_update > 0
        assert store.states() == [state]
        assert store.states("elsewhere") == []

    def test_a_state_counts_findings_by_severity(self, store: LocalStore, run: str) -> None:
        open_one, over = finding(severity="warning"), finding(severity="critical", episode=2, closed=True)
        store.put_watch(run, WatchState(1), [open_one, over, finding(severity="warning", kind="nonfinite")])
        state = store.state(run)
        assert (state.findings, state.resolved, state.health) == ({"warning": 2}, {"critical": 1}, "critical")

    def test_latest_is_the_last_write_of_the_highest_step(self, store: LocalStore, run: str) -> None:
        store.append(run, block_of([Point(LOSS, 5, 1.0, 2.0), Point(LOSS, 9, NAN, 3.0), Point(LOSS, 9, INF, 4.0, 2)]))
        store.append(run, block_of([Point(LOSS, 7, 8.0), Point(NORM, 1, 6.0, 1.0)]))
        assert store.latest(run, 1) == [Point(LOSS, 9, INF, 4.0, 2), Point(NORM, 1, 6.0, 1.0)]
        assert store.latest(run, 2) == []

    def test_a_selection_picks_series_and_steps(self, store: LocalStore, run: str) -> None:
        second = Series("loss", role="solver", stream="eval", attempt=2)
        store.append(run, block_of([Point(LOSS, step, float(step)) for step in range(5)] + [Point(second, 3, 7.0)]))
        assert [one.series for one in store.curves(run, Selection(roles=("solver",)))] == [second]
        assert [one.series for one in store.curves(run, Selection(stream="train"))] == [LOSS]
        assert [one.series for one in store.curves(run, Selection(attempt=2))] == [second]
        assert store.curves(run, Selection(scopes=("layers.0",))) == []
        assert len(store.curves(run, Selection(scopes=("",)))) == 2
        assert store.curves(run, Selection(first_step=1, last_step=2))[0].steps == [1, 2]

    def test_thinning_keeps_every_spike_and_every_stretch_of_nan(self, store: LocalStore, run: str) -> None:
        values = [1.0 + 0.001 * (step % 7) for step in range(10_000)]
        values[1234], values[7777] = 1e6, -1e6
        values[4000:4100] = [NAN] * 100
        values[9000] = INF
        store.append(run, losses(*values))
        (curve,) = store.curves(run, Selection(buckets=50))
        kept = dict(zip(curve.steps, curve.values, strict=True))
        assert len(curve.steps) <= 50 * 6
        assert (curve.steps[0], curve.steps[-1]) == (0, 9999)
        assert (kept[1234], kept[7777], kept[9000]) == (1e6, -1e6, INF)
        assert math.isnan(kept[4000])
        assert math.isnan(kept[4099])
        assert curve.steps == sorted(kept)

    def test_thinning_copes_with_the_widest_axis(self, store: LocalStore, run: str) -> None:
        store.append(run, block_of([Point(LOSS, -(2**63), 1.0), Point(LOSS, 2**63 - 1, 2.0)]))
        (curve,) = store.curves(run, Selection(buckets=10))
        assert curve.values == [1.0, 2.0]

    def test_samples_are_limited(self, store: LocalStore, run: str) -> None:
        store.append(run, Block(), [Sample(step, attempt=2) for step in range(5)])
        assert [one.step for one in store.samples(run, limit=2)] == [0, 1]
        assert store.samples(run, limit=1)[0].attempt == 2

    def test_samples_are_picked_by_attempt(self, store: LocalStore, run: str) -> None:
        store.append(run, Block(), [Sample(5, output="first", attempt=1), Sample(5, output="second", attempt=2)])
        assert [one.output for one in store.samples(run, step=5, attempt=2)] == ["second"]
        assert len(store.samples(run, step=5)) == 2

    def test_the_steps_of_samples_are_listed_by_role(self, store: LocalStore, run: str) -> None:
        store.append(run, Block(), [Sample(7, "solver"), Sample(3, "verifier"), Sample(7, "solver"), Sample(9, "verifier")])
        assert store.sample_steps(run) == [3, 7, 9]
        assert store.sample_steps(run, "solver") == [7]
        assert store.sample_steps(run, "absent") == []

    def test_the_points_of_an_attempt_are_counted(self, store: LocalStore, run: str) -> None:
        store.append(run, block_of([Point(LOSS, 1, 1.0), Point(LOSS, 1, 2.0), Point(Series("loss", attempt=2), 1, 1.0)]))
        assert [store.count(run, attempt) for attempt in (1, 2, 3)] == [2, 1, 0]

    def test_a_checkpoint_of_the_files_loses_nothing(self, store: LocalStore, run: str) -> None:
        store.append(run, losses(1.0))
        store.checkpoint()
        assert [point.value for point in replayed(store, run)] == [1.0]
