"""A streamed NaN reaches a person: collector → Prometheus → rule → Alertmanager → webhook, all of them real."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from prometheus.stack import Told, alertmanager, asked, prometheus, receiver, until

from gradwatch.client.http import Http
from gradwatch.collector.access import Access
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.store import open_store

API_KEY = "a key of this test alone"
PAGE, SEEN_AS = "http://127.0.0.1:8420", "https://gradwatch.example"
WITHIN = 15.0
logger = logging.getLogger(__name__)
JSON = {"Content-Type": "application/json"}


class Training:
    """A run that logs loss and gradient norm of one role over HTTP, a step a request."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._step = 0
        opening = {"id": "r1", "process": "p", "name": "dr-mas", "project": "search"}
        http.request("POST", "/api/v1/runs", json.dumps(opening).encode(), JSON)

    def log(self, *values: float | str) -> None:
        for value in values:
            batch = {
                "process": "p",
                "series": ["solver/loss", "solver/grad_norm"],
                "steps": [{"step": self._step, "value": [value, value]}],
            }
            self._http.request("POST", "/api/v1/runs/r1/batches", json.dumps(batch).encode(), JSON)
            self._step += 1


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A collector's, which shows a finding for 5 s at least: scrapes come each second here, and each 15 s in earnest."""
    monkeypatch.setattr("gradwatch.exporters.prometheus.reading.SHOWN_SECONDS", 5.0)
    store = open_store(tmp_path / "data")
    collector = Collector(store, page=PAGE)
    collector.start()
    with running(create_app(collector, Access(api_key=API_KEY))) as url:
        yield url
    collector.close()
    store.close()


def said(told: list[Told], status: str) -> Told | None:
    return next((one for one in told if one.status == status), None)


def test_a_streamed_nan_reaches_a_receiver_with_role_step_reason_and_link_and_resolves(address: str, tmp_path: Path) -> None:
    with (
        Http(address, API_KEY) as http,
        receiver() as (webhook, told),
        alertmanager(tmp_path, webhook) as alerts,
        prometheus(tmp_path, address, API_KEY, alerts) as queries,
    ):
        training = Training(http)
        training.log(*[1.0] * 40)
        began = monotonic()
        training.log("NaN")

        fired = until(lambda: said(told, "firing"), WITHIN, "an alert reaches the receiver")
        logger.info("told after %.1f s", fired.at - began)
        assert fired.receiver == "/page"
        assert fired.labels["alertname"] == "GradwatchCriticalFinding"
        assert (fired.labels["run"], fired.labels["role"], fired.labels["severity"]) == ("r1", "solver", "critical")
        assert fired.annotations == {
            "summary": "critical: nonfinite in loss, role solver, since step 40 (run dr-mas)",
            "role": "solver",
            "step": "40",
            "reason": "loss became NaN or infinite",
            "link": f"{SEEN_AS}/runs/r1?metric=loss&role=solver&step=40",
        }
        assert asked(queries, 'gradwatch_grad_norm{run="r1", role="solver"}') == ["NaN"]
        assert asked(queries, 'gradwatch_nonfinite_total{run="r1", role="solver"}') == ["2"]

        recovered = monotonic()
        training.log(*[1.0] * 20)
        resolved = until(lambda: said(told, "resolved"), WITHIN, "the receiver is told that it is over")
        logger.info("resolved after %.1f s", resolved.at - recovered)
        assert resolved.labels == fired.labels
        assert {one.labels["alertname"] for one in told} == {"GradwatchCriticalFinding"}
