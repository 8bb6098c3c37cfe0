"""Who is let in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import websockets.sync.client
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus

from gradwatch.collector.access import Access, check_bind, judged, session_of
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.server import running
from gradwatch.errors import SettingsError

KEY = "a long random text"
LOCKED = Access("0.0.0.0", KEY)


@pytest.fixture
def locked(collector: Collector) -> Iterator[str]:
    app = create_app(collector, Access("127.0.0.1", KEY))

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    app.router.routes.append(WebSocketRoute("/live", echo))
    with running(app) as url:
        yield url


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.5", "training-box", "128.0.0.1"])
def test_a_collector_that_others_can_reach_needs_a_key(collector: Collector, host: str) -> None:
    with pytest.raises(SettingsError, match="GRADWATCH_API_KEY"):
        check_bind(host, "")
    with pytest.raises(SettingsError, match="GRADWATCH_API_KEY"):
        create_app(collector, Access(host))
    check_bind(host, KEY)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_none(host: str) -> None:
    check_bind(host, "")


def test_every_route_but_healthz_asks_for_the_key(locked: str) -> None:
    with httpx.Client(base_url=locked) as http:
        assert http.get("/healthz").status_code == 200
        for path in ("/api/v1/runs", "/readyz", "/metrics", "/api/docs", "/api/openapi.json", "/api/nothing", "/", "/healthz/x"):
            answer = http.get(path)
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert answer.headers["Content-Type"] == "application/problem+json"
        assert http.post("/api/v1/runs", json={"id": "a", "process": "p"}).status_code == 401
        good = {"Authorization": f"Bearer {KEY}"}
        assert http.get("/api/v1/runs", headers=good).status_code == 200
        assert http.get("/metrics", headers={"Authorization": f"bearer  {KEY}"}).status_code == 200


@pytest.mark.parametrize("said", ["Bearer", "Bearer ", "Bearer wrong", f"Basic {KEY}", KEY, "Bearer ä"])
def test_a_wrong_key_is_no_key(said: str) -> None:
    refusal = judged(LOCKED, "/api/v1/runs", {"host": "x", "authorization": said})
    assert refusal is not None
    assert refusal.status == 401


def test_a_browser_logs_in_once_and_its_cookie_is_not_the_key(locked: str) -> None:
    with httpx.Client(base_url=locked, headers={"Accept": "text/html"}) as http:
        sent = http.get("/runs/r?step=5")
        assert (sent.status_code, sent.headers["Location"]) == (303, "/login?next=%2Fruns%2Fr%3Fstep%3D5")
        form = http.get(sent.headers["Location"])
        assert 'value="/runs/r?step=5"' in form.text
        wrong = http.post("/login", data={"key": "wrong", "next": "/runs/r?step=5"})
        assert (wrong.status_code, "not the key" in wrong.text, "set-cookie" in wrong.headers) == (401, True, False)
        right = http.post("/login", data={"key": KEY, "next": "/runs/r?step=5"})
        assert (right.status_code, right.headers["Location"]) == (303, "/runs/r?step=5")
        cookie = right.headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert KEY not in cookie
        assert http.get("/api/v1/runs").status_code == 200
        http.cookies.set("gradwatch_session", "0" * 64)
    assert httpx.get(f"{locked}/api/v1/runs", headers={"Cookie": f"gradwatch_session={KEY}"}).status_code == 401


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y"]
)
def test_a_login_leads_nowhere_else(locked: str, target: str) -> None:
    answer = httpx.post(f"{locked}/login", data={"key": KEY, "next": target})
    assert answer.headers["Location"] == "/"


def test_the_form_shows_what_it_was_given_as_text(locked: str) -> None:
    page = httpx.get(f"{locked}/login", params={"next": '/"><script>alert(1)</script>'}).text
    assert "<script>" not in page


def test_a_form_that_is_too_large_is_not_read(locked: str) -> None:
    assert httpx.post(f"{locked}/login", data={"key": KEY, "x": "y" * 20_000}).status_code == 401


def test_websockets_are_judged_as_requests_are(locked: str) -> None:
    address = locked.replace("http", "ws") + "/live"
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(address)
    assert refused.value.response.status_code == 403
    with websockets.sync.client.connect(address, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        assert socket.recv(10) == "hello"
    cookie = {"Cookie": f"gradwatch_session={session_of(KEY)}"}
    with websockets.sync.client.connect(address, additional_headers=cookie) as socket:
        assert socket.recv(10) == "hello"
    with pytest.raises(InvalidStatus):
        websockets.sync.client.connect(address, additional_headers=cookie, origin="http://evil.example")


@pytest.mark.parametrize(
    ("access", "headers", "status"),
    [
        (Access(), {"host": "127.0.0.1:8420"}, None),
        (Access(), {"host": "localhost:8420"}, None),
        (Access(), {"host": "[::1]:8420"}, None),
        (Access(), {"host": "evil.example:8420"}, 403),
        (Access(), {"host": "127.0.0.1.evil.example"}, 403),
        (Access(), {"host": ""}, 403),
        (Access(), {}, 403),
        (Access(), {"host": "[::1"}, 403),
        (Access(), {"host": "127.0.0.1:8420", "origin": "http://127.0.0.1:8420"}, None),
        (Access(), {"host": "127.0.0.1:8420", "origin": "http://evil.example"}, 403),
        (Access(), {"host": "127.0.0.1:8420", "origin": "http://127.0.0.1:9999"}, 403),
        (Access(), {"host": "127.0.0.1:8420", "origin": "null"}, 403),
        (LOCKED, {"host": "anything", "authorization": f"Bearer {KEY}"}, None),
        (LOCKED, {"host": "x", "cookie": f"a=b; gradwatch_session={session_of(KEY)}"}, None),
        (LOCKED, {"host": "x", "cookie": f"gradwatch_session={session_of(KEY)}", "origin": "http://evil.example"}, 403),
        (LOCKED, {"host": "x", "cookie": "]]]=;;"}, 401),
    ],
)
def test_another_sites_page_is_kept_out(access: Access, headers: dict[str, Any], status: int | None) -> None:
    refusal = judged(access, "/api/v1/runs", headers)
    assert (None if refusal is None else refusal.status) == status
