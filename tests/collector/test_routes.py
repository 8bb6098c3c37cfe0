"""Every route answers, every error is a problem document, and the description is what is served."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest
from collector.conftest import Served
from collector.points import LOSS, NORM, batch_of, block_of, until
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gradwatch.collector.app import ENDPOINTS, create_app
from gradwatch.collector.bodies import Limits
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.schema import Checkpoint, Sample, Series
from gradwatch.store.local import LocalStore
from gradwatch.wire import MSGPACK, OpenRun

RUN = "/api/v1/runs/r"


@pytest.fixture(scope="module")
def filled(shared: Served) -> Served:
    """With a NaN, a finding, samples, a checkpoint, an evaluation and two attempts."""
    collector = shared.collector
    evaluation = Series("accuracy", "eval/accuracy", stream="eval")
    collector.submit("r", batch_of(block_of(LOSS, [0.5, math.nan, math.inf, -math.inf]), "a")).result(20)
    collector.open(OpenRun(id="r", process="q", launch="second"))
    collector.submit("r", batch_of(block_of(LOSS, [0.5, math.nan, 0.25]), "b", process="q")).result(20)
    collector.submit("r", batch_of(block_of(Series("reward", "solver/reward", role="solver"), [1.0]), "c", process="q")).result(20)
    saved = [Checkpoint(step=2, uri="out/2", metrics={"x": math.nan})]
    said = [Sample(step=1, role="solver", output="4"), Sample(step=2, role="verifier", rewards={"a": math.inf})]
    more = batch_of(block_of(evaluation, [0.1, 0.9, 0.3], first=10), "d", process="q", checkpoints=saved, samples=said)
    collector.submit("r", more).result(20)
    assert collector.watching.wait_until_judged(20)
    return shared


def get(served: Served, path: str, **params: Any) -> Any:
    answer = served.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_runs_have_their_health(filled: Served) -> None:
    (one,) = get(filled, "/api/v1/runs")["runs"]
    assert (one["info"]["id"], one["attempt"], one["health"]) == ("r", 2, "critical")
    assert get(filled, RUN) == one
    assert get(filled, "/api/v1/runs", project="elsewhere") == {"runs": []}


def test_attempts_series_checkpoints_and_events(filled: Served) -> None:
    assert [one["number"] for one in get(filled, f"{RUN}/attempts")["attempts"]] == [1, 2]
    spans = get(filled, f"{RUN}/series")["series"]
    assert [(one["series"]["metric"], one["first_step"], one["last_step"]) for one in spans] == [
        ("loss", 1, 4),
        ("loss", 1, 3),
        ("reward", 1, 1),
        ("accuracy", 10, 12),
    ]
    assert [(one["uri"], one["metrics"]) for one in get(filled, f"{RUN}/checkpoints")["checkpoints"]] == [("out/2", {"x": "NaN"})]
    assert [one["kind"] for one in get(filled, f"{RUN}/events")["events"]] == ["opened", "resumed"]


def test_json_names_what_is_not_finite(filled: Served) -> None:
    (curve,) = get(filled, f"{RUN}/curves", metric="loss", attempt=1)["curves"]
    assert (curve["steps"], curve["values"]) == ([1, 2, 3, 4], [0.5, "NaN", "Infinity", "-Infinity"])


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, [("loss", 1), ("loss", 2), ("reward", 2), ("accuracy", 2)]),
        ({"metric": ["reward", "accuracy"]}, [("reward", 2), ("accuracy", 2)]),
        ({"role": "solver"}, [("reward", 2)]),
        ({"role": ""}, [("loss", 1), ("loss", 2), ("accuracy", 2)]),
        ({"stream": "eval"}, [("accuracy", 2)]),
        ({"attempt": 1}, [("loss", 1)]),
        ({"first_step": 4}, [("loss", 1), ("accuracy", 2)]),
        ({"last_step": 0}, []),
        ({"metric": "nothing"}, []),
    ],
)
def test_curves_are_selected(filled: Served, params: dict[str, Any], wanted: list[tuple[str, int]]) -> None:
    curves = get(filled, f"{RUN}/curves", **params)["curves"]
    assert [(one["series"]["metric"], one["series"]["attempt"]) for one in curves] == wanted


def test_samples_are_picked_by_step_and_role(filled: Served) -> None:
    def outputs(**params: Any) -> list[tuple[int, str]]:
        return [(one["step"], one["role"]) for one in get(filled, f"{RUN}/samples", **params)["samples"]]

    assert outputs() == [(1, "solver"), (2, "verifier")]
    assert (outputs(step=2), outputs(role="solver"), outputs(limit=1)) == ([(2, "verifier")], [(1, "solver")], [(1, "solver")])
    assert get(filled, f"{RUN}/samples", step=2)["samples"][0]["rewards"] == {"a": "Infinity"}


def test_findings_and_the_best_step(filled: Served) -> None:
    findings = get(filled, f"{RUN}/findings")["findings"]
    assert [(one["finding"]["kind"], one["finding"]["attempt"]) for one in findings] == [("nonfinite", 1), ("nonfinite", 2)]
    assert get(filled, f"{RUN}/best")["best"]["metric"] == "eval/accuracy"


def test_everything_is_had_as_msgpack_too(filled: Served) -> None:
    for one in ENDPOINTS:
        if one.method == "GET" and one.path.startswith("/api"):
            answer = filled.http.get(one.path.replace("{run}", "r"), headers={"Accept": MSGPACK})
            assert answer.headers["Content-Type"] == MSGPACK
            msgspec.msgpack.decode(answer.content, type=one.gives)


PROBLEMS = [
    ("GET", "/api/v1/runs/nobody", 404, "run 'nobody' does not exist"),
    ("GET", "/api/v1/runs/nobody/curves", 404, "run 'nobody' does not exist"),
    ("GET", "/api/v1/runs/nobody/tail?wait=5", 404, "run 'nobody' does not exist"),
    ("GET", "/api/v1/runs/nobody/best", 404, "run 'nobody' does not exist"),
    ("POST", "/api/v1/runs/nobody/batches", 404, "open it with POST /api/v1/runs first"),
    ("GET", f"{RUN}/curves?metrics=loss", 400, "there is no parameter 'metrics' here; there are metric, role"),
    ("GET", f"{RUN}/curves?attempt=last", 400, "attempt='last': must be a whole number"),
    ("GET", f"{RUN}/tail?wait=31", 400, "wait must lie within"),
    ("GET", f"{RUN}/tail?wait=nan", 400, "wait must lie within"),
    ("GET", f"{RUN}/tail?after=-1", 400, "must not be negative"),
    ("GET", f"{RUN}/samples?limit=-1", 400, "limit='-1': must lie within 0 and"),
    ("GET", f"{RUN}/samples?step=9223372036854775808", 400, "must lie within"),
    ("GET", f"{RUN}/tail?after=9223372036854775808", 400, "must lie within"),
    ("DELETE", RUN, 405, "DELETE does nothing here: GET or HEAD does"),
    ("GET", f"{RUN}/batches", 405, "POST does"),
    ("PATCH", "/api/v1/nothing", 404, "nothing at /api/v1/nothing"),
    ("GET", "/api", 404, "nothing at /api"),
    ("OPTIONS", "/api/v2/runs", 404, "nothing at /api/v2/runs"),
    ("GET", "/api/docs/assets/none.js", 404, "Not Found"),
    ("GET", "/nothing", 404, "Not Found"),
]


@pytest.mark.parametrize(("method", "path", "status", "detail"), PROBLEMS)
def test_errors_are_problem_documents(filled: Served, method: str, path: str, status: int, detail: str) -> None:
    body = b'{"series": ["a"], "steps": []}' if method == "POST" else None
    answer = filled.http.request(method, path, content=body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    told = answer.json()
    assert (told["status"], told["instance"]) == (status, path.partition("?")[0])
    assert detail in told["detail"]


def test_a_page_that_is_mounted_later_cannot_take_the_interface(collector: Collector) -> None:
    app = create_app(collector)
    app.router.routes.append(Route("/{path:path}", lambda _: PlainTextResponse("page"), methods=["GET", "POST", "PUT"]))
    with running(app) as url, httpx.Client(base_url=url) as http:
        assert http.get("/").text == "page"
        for method in ("GET", "POST", "PUT", "DELETE"):
            answer = http.request(method, "/api/v1/nothing")
            assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
        assert http.get("/healthz").json() == {"status": "ok"}


def test_an_error_of_ours_tells_no_internals(collector: Collector, run: str, caplog: pytest.LogCaptureFixture) -> None:
    with running(create_app(collector)) as url, httpx.Client(base_url=url) as http:
        collector._store.close()
        answer = http.get("/api/v1/runs/r")
        assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
        assert "log" in answer.json()["detail"]
        assert "Traceback" not in answer.text
    assert collector.vitals().errors_total["request"] == 1
    assert any(one.exc_info for one in caplog.records)


def test_every_example_of_the_description_can_be_sent(served: Served) -> None:
    document = get(served, "/api/openapi.json")
    assert set(document["paths"]) == {one.path for one in ENDPOINTS}
    sent = 0
    for path, methods in document["paths"].items():
        for example in methods.get("post", {"requestBody": {"content": {}}})["requestBody"]["content"].items():
            kind, content = example
            for one in content.get("examples", {}).values():
                answer = served.http.post(
                    path.replace("{run}", "demo-run"), content=json.dumps(one["value"]), headers={"Content-Type": kind}
                )
                assert str(answer.status_code) in methods["post"]["responses"], answer.text
                sent += 1
    assert sent >= 3
    assert get(served, "/api/v1/runs/demo-run")["status"] == "finished"


def test_every_reference_of_the_description_leads_somewhere(shared: Served) -> None:
    text = shared.http.get("/api/openapi.json").text
    document = json.loads(text)
    names = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert {"Batch", "StepBatch", "Ack", "Problem", "OpenRun"} <= names
    assert names <= set(document["components"]["schemas"])
    used = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    assert len(used) == sum(map(len, document["paths"].values()))


def test_the_description_is_a_page_without_foreign_files(shared: Served) -> None:
    page = shared.http.get("/api/docs").text
    assert "http://" not in page
    assert "https://" not in page
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert f"/api/docs/assets/{name}" in page
        assert shared.http.get(f"/api/docs/assets/{name}").status_code == 200


class TestTail:
    def test_points_come_in_the_order_of_their_commits(self, served: Served) -> None:
        served.collector.submit("r", batch_of(block_of(LOSS, [1.0, math.nan]), "a")).result(20)
        served.collector.submit("r", batch_of(block_of(NORM, [2.0]), "b")).result(20)
        first = get(served, f"{RUN}/tail", limit=2)
        assert ([one["metric"] for one in first["series"]], first["after"]) == (["loss"], 2)
        assert first["points"] == [[0, 1, 1.0, 1001.0, 0], [0, 2, "NaN", 1002.0, 0]]
        rest = get(served, f"{RUN}/tail", after=2)
        assert ([one["metric"] for one in rest["series"]], rest["points"], rest["after"]) == (
            ["grad_norm"],
            [[0, 1, 2.0, 1001.0, 0]],
            3,
        )
        assert get(served, f"{RUN}/tail", after=3) == {"series": [], "points": [], "after": 3}

    def test_a_wait_ends_with_the_next_commit(self, served: Served) -> None:
        with ThreadPoolExecutor(1) as pool:
            begun = time.monotonic()
            waiting = pool.submit(get, served, f"{RUN}/tail", after=0, wait=25)
            assert until(lambda: served.collector.listeners._of_run)
            served.collector.submit("r", batch_of(block_of(LOSS, [1.0]), "a")).result(20)
            assert waiting.result(20)["after"] == 1
            assert time.monotonic() - begun < 15
        assert until(lambda: not served.collector.listeners._of_run)

    def test_a_wait_ends_without_news(self, served: Served) -> None:
        assert get(served, f"{RUN}/tail", after=0, wait=0.05)["points"] == []

    def test_a_wait_does_not_hold_up_the_end_of_the_server(self, collector: Collector, run: str) -> None:
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            with running(create_app(collector)) as url:
                waiting = pool.submit(httpx.get, f"{url}{RUN}/tail", params={"wait": 25}, timeout=30)
                assert until(lambda: collector.listeners._of_run)
            assert waiting.result(20).json()["points"] == []
        assert time.monotonic() - begun < 10


def test_a_full_collector_says_when_to_come_again_and_loses_nothing(store: LocalStore) -> None:
    collector = Collector(store, room=50_000)
    collector.start()
    collector.open(OpenRun(id="r", process="p"))
    release = threading.Event()
    bodies = [msgspec.msgpack.encode(batch_of(block_of(LOSS, [float(at)] * 200, at * 200), f"b{at}")) for at in range(30)]
    headers = {"Content-Type": MSGPACK}
    with running(create_app(collector)) as url, httpx.Client(base_url=url, timeout=30) as http, ThreadPoolExecutor(30) as pool:

        def post(body: bytes) -> list[int]:
            """The statuses until the batch was taken; whoever is told to come again does so when the writer is free."""
            statuses = []
            while not statuses or statuses[-1] == 429:
                answer = http.post(f"{RUN}/batches", content=body, headers=headers)
                statuses.append(answer.status_code)
                if answer.status_code == 429:
                    assert answer.headers["Retry-After"] == "1"
                    refused.set()
                    assert release.wait(20)
            return statuses

        refused = threading.Event()
        collector._writer.call(release.wait)
        sent = [pool.submit(post, body) for body in bodies]
        assert refused.wait(20)
        ready = http.get("/readyz")
        release.set()
        statuses = [one.result(30) for one in sent]
        assert any(429 in one for one in statuses)
        assert all(one[-1] == 200 for one in statuses)
        assert ready.status_code in (200, 503)
        assert http.get("/readyz").status_code == 200
    assert collector.state("r").sequence == 6000
    assert collector.vitals().refused_requests_total["busy"] > 0
    collector.close()


def test_readiness_says_why_not(served: Served) -> None:
    assert get(served, "/readyz") == {"status": "ok"}
    served.collector.watching.close()
    answer = served.http.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the collector is not ready: its watcher does not run")
    assert get(served, "/healthz") == {"status": "ok"}


def test_metrics_are_scraped(filled: Served) -> None:
    text = filled.http.get("/metrics").text
    assert "gradwatch_collector_points_total" in text
    assert 'gradwatch_nonfinite_total{project="default",role="",run="r"} 4.0' in text.replace(
        ',run="r",role=""', ',role="",run="r"'
    )


def test_a_sender_that_goes_away_is_no_error_of_ours(served: Served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as sender:
        head = f"POST {RUN}/batches HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5000\r\n\r\n"
        sender.sendall(head.encode() + b"{")
        assert until(lambda: served.collector.room.taken == 5000)
    assert until(lambda: served.collector.room.taken == 0)
    assert served.collector.vitals().errors_total["request"] == 0


def test_a_sender_that_falls_silent_keeps_no_room(served: Served) -> None:
    with running(create_app(served.collector, limits=Limits(silence=0.1))) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as sender:
            head = f"POST {RUN}/batches HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5000\r\n\r\n"
            sender.sendall(head.encode() + b"{")
            assert sender.recv(1000).startswith(b"HTTP/1.1 408")
            assert until(lambda: served.collector.room.taken == 0)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"config": {"a": %s}}' % ("[" * 200 + "]" * 200), "config is nested more than 50 deep"),
        ('{"roles": {"a": {"b": 18446744073709551616}}}', "whole numbers must fit into 64 bits"),
        ('{"name": "\\ud800", "config": {"a": NaN}}', "the body is no JSON"),
    ],
)
def test_what_nobody_could_read_again_is_refused(shared: Served, body: str, detail: str) -> None:
    given = {"id": "odd", "process": "p"}
    answer = shared.http.post("/api/v1/runs", content=json.dumps(given)[:-1] + ", " + body[1:])
    assert answer.status_code == 400, answer.text
    assert detail in answer.json()["detail"]
    for media in ("application/json", MSGPACK):
        assert shared.http.get("/api/v1/runs", headers={"Accept": media}).status_code == 200
