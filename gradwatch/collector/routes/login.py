"""`/login`: a browser shows the key once, and gets a cookie that opens the page."""

from __future__ import annotations

from html import escape
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from gradwatch.collector.access import COOKIE, LOGIN, is_key, session_of
from gradwatch.collector.counts import Counts

MOST_BYTES = 10_000
DAYS = 30

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gradwatch: log in</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; }}
main {{ max-width: 24rem; margin: 15vh auto; padding: 0 1rem; }}
input, button {{ font: inherit; width: 100%; box-sizing: border-box; padding: .5rem; margin-top: .5rem; }}
</style>
</head>
<body>
<main>
<h1>gradwatch</h1>
<form method="post" action="/login">
<label for="key">Key of this collector</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<input name="next" type="hidden" value="{next}">
<button>Log in</button>
<p role="alert">{note}</p>
</form>
</main>
</body>
</html>
"""


class Login(NamedTuple):
    """The form and its answer."""

    api_key: str
    counts: Counts

    async def form(self, request: Request) -> Response:
        """Ask for the key."""
        return HTMLResponse(_page(request.query_params.get("next", "/"), ""))

    async def enter(self, request: Request) -> Response:
        """Give the cookie to whoever has the key."""
        fields = await _fields(request)
        target = _own(fields.get("next", "/"))
        if not is_key(fields.get("key", ""), self.api_key):
            self.counts.refuse(401)
            return HTMLResponse(_page(target, "That is not the key."), 401)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(COOKIE, session_of(self.api_key), max_age=DAYS * 86_400, httponly=True, samesite="strict")
        return answer

    def routes(self) -> list[Route]:
        """Where the two are found; nowhere without a key."""
        if not self.api_key:
            return []
        return [Route(LOGIN, self.form, methods=["GET"]), Route(LOGIN, self.enter, methods=["POST"])]


async def _fields(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _own(target: str) -> str:
    """The target where it is a path of this server, else the front page: a link must not lead a browser elsewhere."""
    inside = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if inside and target.isprintable() else "/"


def _page(target: str, note: str) -> str:
    return PAGE.format(next=escape(_own(target), quote=True), note=escape(note))
