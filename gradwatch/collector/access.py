"""Who may ask: on loopback anybody on the machine, elsewhere whoever has the key; no page of another site, in no case.

A browser shows the key once, at `/login`, and gets a cookie that is derived from it. WebSockets are judged as requests are.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gradwatch.collector.counts import Counts
from gradwatch.collector.problems import problem
from gradwatch.errors import SettingsError

COOKIE = "gradwatch_session"
LOGIN = "/login"
OPEN = frozenset(("/healthz", LOGIN))


class Access(NamedTuple):
    """The host that the collector is bound to, and its key, empty where it has none."""

    host: str = "127.0.0.1"
    api_key: str = ""


LOOPBACK = Access()


def check_bind(host: str, api_key: str) -> None:
    """SettingsError where the collector would be open to a network without a key."""
    if not api_key and not is_loopback(host):
        raise SettingsError(
            f"host={host!r} can be reached from other machines, and the collector has no key: set GRADWATCH_API_KEY to a long "
            "random text, or bind 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own, and no other's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def session_of(api_key: str) -> str:
    """The cookie's value: it proves that its bearer had the key, and does not tell the key."""
    return hmac.new(api_key.encode(), b"gradwatch session", hashlib.sha256).hexdigest()


def is_key(given: str, api_key: str) -> bool:
    """Whether the key is right, in a time that tells nothing."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), api_key.encode())


class Guard:
    """Middleware before everything that the server answers, the page and its WebSockets included."""

    def __init__(self, app: ASGIApp, access: Access, counts: Counts) -> None:
        self._app = app
        self._access = access
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = judged(self._access, scope["path"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._counts.refuse(refusal.status)
        if scope["type"] == "websocket":
            # Refused before it is accepted, which a client sees as HTTP 403.
            await send({"type": "websocket.close", "code": 4403, "reason": refusal.detail[:120]})
            return
        await _answer(refusal, scope)(scope, receive, send)


class Refusal(NamedTuple):
    """Why a request is not let in."""

    status: int
    detail: str


def judged(access: Access, path: str, headers: Mapping[str, str]) -> Refusal | None:
    """None for a request that is let in. Pure."""
    if path == "/healthz":
        return None
    host = headers.get("host", "")
    origin = headers.get("origin", "")
    if origin and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return Refusal(403, f"a page of {origin[:200]} asked, and only the collector's own page may")
    if not access.api_key:
        return None if _is_own(host, access.host) else Refusal(403, f"Host {host[:200]!r} is not this machine: ask 127.0.0.1")
    if path in OPEN or _has_key(headers, access.api_key):
        return None
    return Refusal(401, "the collector asks for its key: send it as Authorization: Bearer KEY (set GRADWATCH_API_KEY)")


def _is_own(host: str, bound: str) -> bool:
    # A name that was pointed at 127.0.0.1 by a stranger's DNS must not reach a collector that asks for no key.
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) or name == bound.lower()


def _has_key(headers: Mapping[str, str], api_key: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_key(given.strip(), api_key):
        return True
    return is_key(_cookie(headers.get("cookie", "")), session_of(api_key))


def _cookie(text: str) -> str:
    try:
        morsel = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _answer(refusal: Refusal, scope: Scope) -> Response:
    path, headers = scope["path"], Headers(scope=scope)
    if refusal.status == 401 and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(f"{LOGIN}?next={quote(f'{path}?{query}' if query else path, safe='')}", 303)
    asks = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
    return problem(refusal.status, refusal.detail, path, asks)
