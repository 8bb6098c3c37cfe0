"""What a collector does with batches, whoever brings them."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from collector.points import LOSS, NORM, batch_of, block_of, exact, number, until

from gradwatch.collector.core import Collector
from gradwatch.collector.inprocess import InProcess
from gradwatch.collector.room import Hold, Room
from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.schema import Block, Checkpoint, Event, Sample, Series
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch.wire import Ack, OpenRun

NORMS = [1.0, 1.1, 0.9, 1.2] * 10


def send(collector: Collector, block: Block | None, name: str = "b", **more: object) -> Ack:
    return collector.submit("r", batch_of(block, name, **more)).result(20)


@pytest.fixture
def hold(collector: Collector):
    """The writer is held until the event is set."""
    release = threading.Event()
    collector._writer.call(release.wait)
    yield release
    release.set()


def test_an_ack_means_that_the_points_are_there(collector: Collector, run: str) -> None:
    ack = send(collector, block_of(LOSS, [1.0, math.nan, math.inf]))
    assert (ack.sequence, ack.points, ack.duplicate) == (3, 3, False)
    (curve,) = collector.curves(run)
    assert exact(curve) == exact(
        curve._replace(steps=[1, 2, 3], values=[1.0, math.nan, math.inf], wall_times=[1001.0, 1002.0, 1003.0])
    )


def test_a_retry_is_free(collector: Collector, run: str) -> None:
    first = send(collector, block_of(LOSS, [1.0, 2.0]))
    again = send(collector, block_of(LOSS, [1.0, 2.0]))
    assert (again.sequence, again.points, again.duplicate) == (first.sequence, 0, True)
    assert collector.state(run).sequence == 2
    assert collector.vitals().duplicate_batches_total == 1


def test_a_retry_in_the_same_group_is_free(collector: Collector, run: str, hold: threading.Event) -> None:
    acks = [collector.submit("r", batch_of(block_of(LOSS, [float(at)]), "same")) for at in range(3)]
    hold.set()
    assert sorted(one.result(20).duplicate for one in acks) == [False, True, True]
    assert collector.state(run).sequence == 1


def test_what_waits_becomes_one_commit(collector: Collector, run: str, hold: threading.Event) -> None:
    before = collector.vitals().commits_total
    acks = [collector.submit("r", batch_of(block_of(LOSS, [1.0], at), f"b{at}")) for at in range(50)]
    hold.set()
    wait(acks, 20)
    assert collector.vitals().commits_total - before <= 2
    assert collector.state(run).sequence == 50


def test_an_unknown_run_is_refused_and_its_neighbours_are_not(collector: Collector, run: str, hold: threading.Event) -> None:
    good = collector.submit("r", batch_of(block_of(LOSS, [1.0]), "a"))
    bad = collector.submit("nobody", batch_of(block_of(LOSS, [1.0]), "b"))
    hold.set()
    assert good.result(20).points == 1
    with pytest.raises(RefusedError, match="does not exist") as refused:
        bad.result(20)
    assert refused.value.status == 404


def test_what_the_store_cannot_keep_fails_alone(collector: Collector, run: str, hold: threading.Event) -> None:
    good = [collector.submit("r", batch_of(block_of(LOSS, [1.0], at), f"b{at}")) for at in range(3)]
    bad = collector.submit("r", batch_of(None, "bad", events=[Event(kind="note", message="x", facts={"a": object()})]))
    bad2 = collector.submit("r", batch_of(block_of(Series("loss", "\udcff"), [1.0]), "bad2"))
    hold.set()
    assert [one.result(20).points for one in good] == [1, 1, 1]
    with pytest.raises(RefusedError, match="cannot be stored"):
        bad2.result(20)
    assert wait([bad], 20).done
    assert send(collector, block_of(LOSS, [1.0], 9), "later").points == 1


def test_beyond_its_room_a_collector_is_busy_and_then_loses_nothing(store: LocalStore) -> None:
    collector = Collector(store, room=100_000)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    release = threading.Event()
    collector._writer.call(release.wait)
    acks: list[Future[Ack]] = []

    def fill() -> None:
        for at in range(100):
            acks.append(collector.submit("r", batch_of(block_of(LOSS, [1.0] * 100, at * 100), f"b{at}")))

    with pytest.raises(UnavailableError, match="busy") as busy:
        fill()
    assert busy.value.retry_after == 1.0
    assert collector.room.taken <= 100_000
    assert any("wait for the disk" in one for one in collector.problems())
    release.set()
    wait(acks, 20)
    assert until(lambda: collector.room.taken == 0)
    assert collector.problems() == []
    for at in range(len(acks), 40):
        collector.submit("r", batch_of(block_of(LOSS, [1.0] * 100, at * 100), f"b{at}")).result(20)
    assert collector.state("r").sequence == 4000
    collector.close()


def test_a_batch_larger_than_the_room_is_taken_when_it_is_alone(store: LocalStore) -> None:
    collector = Collector(store, room=1000)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    assert send(collector, block_of(LOSS, [1.0] * 1000)).points == 1000
    collector.close()


def test_closing_commits_what_waits_and_refuses_what_comes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    collector = Collector(store)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    release = threading.Event()
    collector._writer.call(release.wait)
    acks = [collector.submit("r", batch_of(block_of(LOSS, [1.0], at), f"b{at}")) for at in range(20)]
    closing = threading.Thread(target=collector.close)
    closing.start()
    release.set()
    closing.join(20)
    assert [one.result(0).points for one in acks] == [1] * 20
    with pytest.raises(UnavailableError, match="stopping"):
        collector.submit("r", batch_of(None, "late"))
    collector.close()
    store.close()


def test_an_open_is_not_starved_by_batches(collector: Collector, run: str) -> None:
    stop = threading.Event()

    def keep_sending(who: int) -> None:
        at = 0
        while not stop.is_set():
            at += 1
            collector.submit("r", batch_of(block_of(LOSS, [1.0], at), f"{who}-{at}")).result(20)

    with ThreadPoolExecutor(4) as pool:
        for who in range(4):
            pool.submit(keep_sending, who)
        opened = [collector.open(OpenRun(id=f"other-{at}", process="p")) for at in range(5)]
        stop.set()
    assert all(one.created for one in opened)


def test_fifty_writers_on_one_run_and_every_bit_is_there(collector: Collector, run: str) -> None:
    def write(who: int) -> None:
        series = Series("loss", f"w{who}/loss", role=f"w{who}")
        for batch in range(4):
            block = Block()
            for step in range(batch * 25, batch * 25 + 25):
                block.add(
                    series, step, number(0x7FF8_0000_0000_0000 + who * 1000 + step if step % 3 else who * 1000 + step), float(step)
                )
            collector.submit("r", batch_of(block, f"{who}-{batch}")).result(30)

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(write, range(50)))
    curves = collector.curves(run)
    assert len(curves) == 50
    assert collector.state(run).sequence == 5000
    for curve in curves:
        who = int(curve.series.role[1:])
        wanted = [number(0x7FF8_0000_0000_0000 + who * 1000 + step if step % 3 else who * 1000 + step) for step in range(100)]
        assert exact(curve) == exact(
            curve._replace(steps=list(range(100)), values=wanted, wall_times=[float(s) for s in range(100)])
        )


def test_the_collector_sets_the_attempt(collector: Collector, run: str) -> None:
    send(collector, block_of(LOSS, [1.0]), "a")
    assert collector.open(OpenRun(id="r", process="q", launch="second")).attempt == 2
    assert send(collector, block_of(LOSS, [2.0]), "b", process="q").points == 1
    send(collector, block_of(LOSS, [3.0], 2), "c", process="p")
    send(collector, block_of(Series("loss", "train/loss", attempt=9), [4.0], 3), "d", process="q")
    assert {(curve.series.attempt, tuple(curve.values)) for curve in collector.curves(run)} == {(1, (1.0, 3.0)), (2, (2.0, 4.0))}


def test_a_batch_without_a_process_goes_to_the_newest_attempt(collector: Collector, run: str) -> None:
    send(collector, block_of(LOSS, [1.0]), "a", process="")
    collector.open(OpenRun(id="r", process="q", launch="second"))
    send(collector, block_of(LOSS, [2.0]), "b", process="")
    assert [one.series.attempt for one in collector.curves(run)] == [1, 2]


def test_checkpoints_and_events_get_the_attempt_and_a_time_and_come_once(collector: Collector, run: str) -> None:
    sent = {
        "checkpoints": [Checkpoint(step=5, uri="out/5", metrics={"eval/accuracy": math.nan})],
        "events": [Event(kind="note", message="x", wall_time=5.0), Event(kind="note", message="timeless")],
        "samples": [Sample(step=1, output="4")],
    }
    send(collector, None, "a", **sent)
    send(collector, None, "a", **sent)
    (checkpoint,) = collector.checkpoints(run)
    assert (checkpoint.attempt, checkpoint.uri, checkpoint.wall_time > 0) == (1, "out/5", True)
    assert math.isnan(checkpoint.metrics["eval/accuracy"])
    notes = [one for one in collector.events(run) if one.kind == "note"]
    assert [(one.message, one.attempt, one.wall_time > 0) for one in notes] == [("x", 1, True), ("timeless", 1, True)]
    assert len(collector.samples(run)) == 1


def test_samples_get_the_attempt(collector: Collector, run: str) -> None:
    collector.submit(run, batch_of(None, "s1", samples=[Sample(5, output="first")])).result(20)
    collector.open(OpenRun(id="r", process="q", launch="second"))
    collector.submit(run, batch_of(None, "s2", process="q", samples=[Sample(5, output="second")])).result(20)
    assert [(one.output, one.attempt) for one in collector.samples(run)] == [("first", 1), ("second", 2)]


def test_a_status_ends_the_attempt(collector: Collector, run: str) -> None:
    send(collector, None, "a", status="interrupted")
    assert collector.state(run).status == "interrupted"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"status": "done"}, "finished, interrupted, failed"),
        ({"samples": [Sample(step=2**63)]}, r"samples\[0\]"),
        ({"events": [Event(kind="x", message="", step=-(2**63) - 1)]}, r"events\[0\]"),
        ({"process": "x" * 2000}, "process has 2,000 characters"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(collector: Collector, run: str, more: dict[str, object], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        collector.submit("r", batch_of(None, **more))


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 201, "a\nb"])
def test_an_id_that_no_address_can_hold_is_refused(collector: Collector, name: str) -> None:
    with pytest.raises(RefusedError, match="id is"):
        collector.open(OpenRun(id=name, process="p"))


class TestOpening:
    def test_the_same_process_again_changes_nothing(self, collector: Collector) -> None:
        first = collector.open(OpenRun(id="n", process="p", name="fine", project="x"))
        again = collector.open(OpenRun(id="n", process="p", name="other"))
        assert (first.created, again.created) == (True, False)
        assert (again.name, again.attempt, len(collector.events("n"))) == ("fine", 1, 1)

    def test_a_new_process_resumes_and_keeps_what_the_run_was(self, collector: Collector) -> None:
        collector.open(OpenRun(id="n", process="p", name="fine", project="x", started=5.0))
        send = collector.submit("n", batch_of(block_of(LOSS, [1.0, 2.0]), "a"))
        assert send.result(20).points == 2
        again = collector.open(OpenRun(id="n", process="q", name="other", project="y", config={"lr": 1}, roles={"solver": {}}))
        info = collector.state("n").info
        assert (again.attempt, again.points, info.name, info.project, info.created) == (2, 0, "fine", "x", 5.0)
        assert (info.config, info.roles) == ({"lr": 1}, {"solver": {}})
        assert [one.kind for one in collector.events("n")] == ["opened", "resumed"]

    def test_a_rank_of_the_same_launch_joins_and_is_told_how_far_the_attempt_is(self, collector: Collector) -> None:
        collector.open(OpenRun(id="n", process="p", launch="l", rank=0))
        collector.submit("n", batch_of(block_of(LOSS, [1.0, 2.0]), "a")).result(20)
        joined = collector.open(OpenRun(id="n", process="q", launch="l", rank=1, resume="never"))
        assert (joined.attempt, joined.points, joined.created) == (1, 2, False)

    def test_must_asks_for_a_run_that_is_there(self, collector: Collector) -> None:
        with pytest.raises(RefusedError, match="resume='must'") as refused:
            collector.open(OpenRun(id="n", process="p", resume="must"))
        assert refused.value.status == 404
        collector.open(OpenRun(id="n", process="p"))
        assert collector.open(OpenRun(id="n", process="q", resume="must")).attempt == 2

    def test_never_refuses_a_run_of_another_process(self, collector: Collector) -> None:
        collector.open(OpenRun(id="n", process="p", resume="never"))
        assert collector.open(OpenRun(id="n", process="p", resume="never")).attempt == 1
        with pytest.raises(RefusedError, match="resume='never'") as refused:
            collector.open(OpenRun(id="n", process="q", resume="never"))
        assert refused.value.status == 409

    def test_a_run_without_a_name_goes_by_its_id(self, collector: Collector) -> None:
        assert collector.open(OpenRun(id="n", process="p")).name == "n"


class TestFindingsInAcks:
    def test_a_finding_comes_with_a_later_ack_once(self, collector: Collector, run: str) -> None:
        send(collector, block_of(LOSS, [1.0] * 30 + [math.nan] * 5), "a")
        assert collector.watching.wait_until_judged(20)
        ack = send(collector, None, "b")
        assert [(one.finding.kind, one.finding.start_step) for one in ack.findings] == [("nonfinite", 31)]
        assert [one.action for one in ack.advice] == ["stop"]
        later = send(collector, None, "c", since=ack.cursor)
        assert (later.findings, later.cursor) == ([], ack.cursor)
        assert [one.action for one in later.advice] == ["stop"]

    def test_advice_goes_back_to_the_checkpoint_before_the_trouble(self, collector: Collector, run: str) -> None:
        saved = [Checkpoint(step=step, uri=f"out/{step}") for step in (10, 20, 35)]
        send(collector, block_of(LOSS, [1.0] * 30 + [math.nan] * 5), "a", checkpoints=saved)
        assert collector.watching.wait_until_judged(20)
        (advice,) = send(collector, None, "b").advice
        assert (advice.action, advice.step, advice.uri) == ("rollback", 20, "out/20")

    def test_an_attempt_that_came_after_is_not_advised_about_the_one_before(self, collector: Collector, run: str) -> None:
        send(collector, block_of(LOSS, [1.0] * 30 + [math.nan] * 5), "a")
        assert collector.watching.wait_until_judged(20)
        collector.open(OpenRun(id="r", process="q", launch="second"))
        assert send(collector, None, "b", process="q").advice == []
        assert send(collector, None, "c", process="p").advice == []

    def test_a_spike_at_the_newest_step_is_to_be_skipped(self, collector: Collector, run: str) -> None:
        send(collector, block_of(NORM, [*NORMS, 80.0]), "a")
        assert collector.watching.wait_until_judged(20)
        assert [(one.action, one.step) for one in send(collector, None, "b").advice] == [("skip_step", 41)]
        assert send(collector, block_of(NORM, [1.0], 42), "c").advice == []


def test_a_restart_goes_on_where_the_watcher_stopped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    collector = Collector(store)
    collector.open(OpenRun(id="r", process="p"))  # no watcher runs yet
    send(collector, block_of(LOSS, [1.0] * 30 + [math.nan] * 5), "a")
    collector.close()
    assert store.findings("r") == []
    again = Collector(store)
    again.start()
    assert again.watching.wait_until_judged(20)
    assert [one.finding.start_step for one in store.findings("r")] == [31]
    ack = send(again, None, "b")
    assert ([one.finding.kind for one in ack.findings], [one.action for one in ack.advice]) == (["nonfinite"], ["stop"])
    again.close()
    store.close()


def test_an_idle_collector_moves_its_log_into_the_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    collector = Collector(store, idle=0.05)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    send(collector, block_of(LOSS, [1.0] * 5000))
    log = tmp_path / "points.duckdb.wal"
    assert until(lambda: not log.exists() or log.stat().st_size == 0)
    assert send(collector, block_of(LOSS, [1.0], 6000), "later").points == 1
    collector.close()
    store.close()


def test_in_process_is_a_transport_and_a_query(tmp_path: Path) -> None:
    transport = InProcess(tmp_path)
    assert transport.open(OpenRun(id="r", process="p")).attempt == 1
    assert transport.send("r", batch_of(block_of(LOSS, [math.nan]))).points == 1
    assert transport.query.state("r").sequence == 1
    transport.close()
    transport.close()
    reopened = InProcess(tmp_path)
    assert [one.finding.kind for one in reopened.query.findings("r")] == ["nonfinite"]
    reopened.close()


def test_a_request_holds_the_bytes_that_it_has_so_far() -> None:
    room = Room(100)
    with Hold(room) as first:
        first.reach(60)
        first.reach(50)
        assert room.taken == 60
        first.reach(500)  # nothing waits beside it
        with Hold(room) as second, pytest.raises(UnavailableError):
            second.reach(1)
    assert room.taken == 0


NO_WHERE = Checkpoint(step=1, uri="\udcff")
"""Its text cannot be kept, which shows after the points are committed."""


def test_what_cannot_be_kept_beside_points_doubles_no_neighbours_points(
    collector: Collector, run: str, hold: threading.Event
) -> None:
    unnamed = collector.submit("r", batch_of(block_of(LOSS, [1.0, 2.0]), ""))
    named = collector.submit("r", batch_of(block_of(NORM, [1.0, math.nan]), "named"))
    bad = collector.submit("r", batch_of(None, "bad", checkpoints=[NO_WHERE]))
    hold.set()
    assert [(one.result(20).points, one.result(20).duplicate) for one in (unnamed, named)] == [(2, False), (2, False)]
    with pytest.raises(RefusedError, match="cannot be stored"):
        bad.result(20)
    assert collector.state("r").sequence == 4
    assert collector.vitals().points_total == 4
    assert collector.watching.wait_until_judged(20)
    assert [one.finding.metric for one in collector.findings("r")] == ["grad_norm"]


def test_a_retry_and_a_bad_batch_in_a_group_double_no_neighbours_points(
    collector: Collector, run: str, hold: threading.Event
) -> None:
    hold.set()
    send(collector, block_of(LOSS, [1.0]), "known")
    release = threading.Event()
    collector._writer.call(release.wait)
    known = collector.submit("r", batch_of(block_of(LOSS, [1.0]), "known"))
    unnamed = collector.submit("r", batch_of(block_of(LOSS, [2.0], 2), ""))
    bad = collector.submit("r", batch_of(None, "bad", samples=[Sample(step=1, prompt="\udcff")]))
    release.set()
    assert (known.result(20).duplicate, unnamed.result(20).duplicate) == (True, False)
    with pytest.raises(RefusedError, match="cannot be stored"):
        bad.result(20)
    assert collector.state("r").sequence == 2
    assert collector.vitals().points_total == 2


@pytest.mark.parametrize("when", [0.0, math.nan, math.inf])
def test_a_time_that_is_not_known_is_the_collectors(collector: Collector, when: float) -> None:
    collector.open(OpenRun(id="s", process="p", started=when))
    happened, saved = Event(kind="note", message="m", wall_time=when), Checkpoint(step=1, uri="u", wall_time=when)
    collector.submit("s", batch_of(None, "b", events=[happened], checkpoints=[saved])).result(20)
    now = time.time()
    times = [one.wall_time for one in (*collector.events("s"), *collector.checkpoints("s"))]
    assert len(times) == 3
    assert all(now - 60 < one <= now for one in (*times, collector.state("s").info.created, collector.attempts("s")[0].started))
