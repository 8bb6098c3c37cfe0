"""What the pages answer, and what they leave to the collector."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from gradwatch.collector.server import running
from gradwatch.schema import RunInfo
from gradwatch.store import open_store
from gradwatch.store.local import LocalStore
from gradwatch_dashboards.app import mount, pages_of
from gradwatch_dashboards.pages import PAGES


@pytest.fixture(scope="module")
def store() -> Iterator[LocalStore]:
    one = open_store(None)
    one.put_run(RunInfo("r1", "dr-mas"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def site(store: LocalStore) -> Iterator[httpx.Client]:
    app = FastAPI(openapi_url=None)
    app.add_api_route("/metrics", lambda: PlainTextResponse("up 1"))
    app.add_api_route("/api/{rest:path}", lambda rest: PlainTextResponse("no such thing", 404))
    mount(app, store)
    with running(app) as url, httpx.Client(base_url=url) as client:
        yield client


def test_every_page_is_html_in_english_with_its_scripts_from_here(site: httpx.Client) -> None:
    for path in ("/", "/runs/r1", "/runs/r1?finding=f1", "/runs/no-such-run"):
        page = site.get(path)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert '<html lang="en">' in page.text
        sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert sources
        assert all(one.startswith(("/", "#")) for one in sources)
        assert {site.get(one).status_code for one in sources if one.startswith("/")} == {200}


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/nothing"])
def test_the_collectors_own_addresses_stay_its_own(site: httpx.Client, path: str) -> None:
    assert site.get(path).headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/nothing", "/runs", "/runs/a/b", "/docs", "/openapi.json", "/assets/none.js", "/%3Cscript%3E"])
def test_what_is_no_page_is_a_404_that_leads_back(site: httpx.Client, path: str) -> None:
    page = site.get(path)
    assert page.status_code == 404
    assert '<a href="/">See all runs</a>' in page.text
    assert "<script>" not in page.text


def test_no_websocket_is_opened(site: httpx.Client) -> None:
    config = re.search(r'id="_dash-config" type="application/json">(.*?)</script>', site.get("/").text)
    assert config is not None
    assert "websocket" not in json.loads(config[1])


def test_no_callback_blocks_the_event_loop(store: LocalStore) -> None:
    dash = pages_of(store)
    dash._setup_server()  # type: ignore[no-untyped-call]
    own = [one["callback"] for one in dash.callback_map.values() if "callback" in one]
    assert len(own) == 2 + len(PAGES)
    assert all(inspect.iscoroutinefunction(one) for one in own)


def test_an_error_in_a_callback_is_in_the_log_not_on_the_page(site: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    asked = site.post(
        "/_dash-update-component",
        json={
            "output": "main.children",
            "outputs": {"id": "main", "property": "children"},
            "inputs": [{"id": "url", "property": "pathname", "value": 7}],
            "state": [{"id": "url", "property": "search", "value": ""}],
            "changedPropIds": ["url.pathname"],
        },
    )
    assert asked.json()["response"] == {}
    assert "the page could not be updated" in caplog.text
