"""What a call to a run becomes at the collector."""

from __future__ import annotations

import math
import struct
import threading

import pytest
from client.scripted import Server, wait_until

import gradwatch
from gradwatch.schema import NO_RANK, Advice, Finding, Sample, StoredFinding


def test_every_float_arrives_bit_for_bit(server: Server) -> None:
    odd = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]  # a NaN with a payload
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.nan, odd, math.inf, -math.inf]
    with gradwatch.init(url=server.url) as run:
        for step, value in enumerate(values):
            run.log({"loss": value}, step=step)
    assert [struct.pack("<d", one) for one in server.values("loss")] == [struct.pack("<d", one) for one in values]


def test_each_stream_has_its_own_steps(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"rollout/length": 9.0}, step=8073)
        run.log({"loss": 1.0}, step=0)
        run.log({"loss": 2.0, "eval/accuracy": 0.5})
        run.log({"loss": 3.0})
        run.log({"loss": 0.5}, step=-5)
        run.log({"x": 1.0}, stream="eval")
    found = {(point.series.stream, point.step) for point in server.points()}
    assert found == {("rollout", 8073), ("train", 0), ("train", 1), ("train", 2), ("train", -5), ("eval", 0), ("eval", 1)}


def test_axes_come_from_the_call_before_the_key(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"solver/entropy": 1.0})
        run.log({"solver/entropy": 2.0}, role="verifier", agent="verifier-1", policy="actor", scope="layers.0", stream="eval")
    first, second = (point.series for point in server.points())
    assert (first.metric, first.role, first.stream, first.rank) == ("entropy", "solver", "train", NO_RANK)
    told = (second.metric, second.role, second.agent, second.policy, second.scope, second.stream)
    assert told == ("entropy", "verifier", "verifier-1", "actor", "layers.0", "eval")


def test_absent_is_not_zero(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"a": 1.0, "b": 1.0}, step=0)
        run.log({"a": 1.0}, step=1)
        run.log({"a": 1.0, "b": None}, step=2)
    assert [point.step for point in server.points() if point.series.source_key == "b"] == [0]


def test_wall_times_are_given_or_now(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"a": 1.0}, wall_time=12.5)
        run.log({"a": 1.0})
    first, second = (point.wall_time for point in server.points())
    assert first == 12.5
    assert second > 1.7e9


def test_ranks_above_zero_are_told_apart(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in ("0", "3"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "4")
        with gradwatch.init(url=server.url, id="job") as run:
            run.log({"loss": 1.0})
    assert [point.series.rank for point in server.points()] == [NO_RANK, 3]
    assert [one.rank for one in server.opened] == [0, 3]


def test_samples_checkpoints_and_events_arrive(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:
        run.log({"loss": 1.0}, step=7)
        run.log_samples(
            [
                {"role": "solver", "prompt": "2+2", "output": "4" * 100_005, "rewards": {"right": 1, "form": None}, "turn": 2},
                Sample(step=3, output="ü", advantage=math.nan),
            ]
        )
        run.log_checkpoint("out/7", metrics={"eval/accuracy": 0.5, "note": "text"})
        run.log_event("lr lowered", step=7, facts={"lr": 1e-6})
    batches = list(server.batches.values())
    first, second = (sample for batch in batches for sample in batch.samples)
    assert (first.step, first.role, first.turn, first.flags) == (7, "solver", 2, 1)
    assert first.output.endswith("[cut by gradwatch: 100,005 characters]")
    assert first.rewards["right"] == 1
    assert math.isnan(first.rewards["form"])
    assert second.step == 3
    assert math.isnan(second.advantage or 0)
    saved = [one for batch in batches for one in batch.checkpoints]
    assert [(one.step, one.uri, one.metrics) for one in saved] == [(7, "out/7", {"eval/accuracy": 0.5})]
    assert server.events("note") == ["lr lowered"]
    assert batches[-1].status == "finished"


def test_the_run_announces_what_it_was_told(server: Server) -> None:
    with gradwatch.init("search", "first", url=server.url, id="r1", config={"lr": 1e-3, "net": [1, {2: None}]}, roles=["a", "b"]):
        pass
    (request,) = server.opened
    assert (request.id, request.project, request.name) == ("r1", "search", "first")
    assert request.config == {"lr": 1e-3, "net": [1, {"2": None}]}
    assert request.roles == {"a": {}, "b": {}}


def test_findings_and_advice_come_back_with_the_ack(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = Finding(
        kind="nonfinite",
        detector="d",
        severity="critical",
        metric="loss",
        start_step=3,
        end_step=3,
        message="NaN",
        suggestion="stop",
    )
    server.ack = {
        "findings": [StoredFinding(id="f", run="r", finding=found)],
        "advice": [Advice(action="stop", reason="NaN")],
    }
    run = gradwatch.init(url=server.url, name="sick")
    assert run.advice() == []
    run.log({"loss": math.nan})
    assert run.flush()
    assert [one.action for one in gradwatch.advice()] == ["stop"]
    assert run.url == f"{server.url}/run/{run.id}"
    gradwatch.finish()
    told = capsys.readouterr().err
    assert told.count("CRITICAL nonfinite in loss from step 3: NaN") == 1
    assert "run sick finished: 1 points sent, 0 dropped; findings: 1 critical" in told


def test_quiet_says_nothing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with gradwatch.init(url=server.url, quiet=True) as run:
        run.log({"loss": 1.0})
    assert capsys.readouterr().err == ""


def test_many_threads_may_log_at_once(server: Server) -> None:
    with gradwatch.init(url=server.url) as run:

        def work(thread: int) -> None:
            for step in range(200):
                run.log({f"m{thread}": float(step)}, step=step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    for number in range(8):
        assert server.values(f"m{number}") == [float(step) for step in range(200)]


def test_a_slow_trickle_is_seen_within_a_second(server: Server) -> None:
    run = gradwatch.init(url=server.url)
    run.log({"loss": 1.0})
    wait_until(lambda: server.values("loss") == [1.0], seconds=2)


def test_findings_are_asked_for_after_the_last_batch_but_not_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.client.worker.POLLS", (0.05, 0.1))
    run = gradwatch.init(url=server.url)
    run.log({"loss": 1.0})
    wait_until(lambda: len(server.batches) == 3)
    assert [batch.columns is None for batch in server.batches.values()] == [False, True, True]


def test_a_large_batch_is_halved_until_it_fits(server: Server) -> None:
    def too_large(request: object) -> bool:
        return len(request.body) > 2_000 and request.problem(413)  # type: ignore[attr-defined]

    server.misbehave = too_large
    with gradwatch.init(url=server.url) as run:
        for step in range(500):
            run.log({"loss": float(step)}, step=step)
    assert server.values("loss") == [float(step) for step in range(500)]


def test_the_newest_run_is_logged_to_and_the_older_one_after_it(server: Server) -> None:
    gradwatch.init(url=server.url, id="one")
    second = gradwatch.init(url=server.url, id="two")
    assert gradwatch.init(url=server.url, id="two") is second
    gradwatch.log({"a": 2.0})
    gradwatch.finish()
    gradwatch.log({"a": 1.0})
    gradwatch.finish()
    assert server.values("a") == [2.0, 1.0]
    assert len(server.opened) == 2
