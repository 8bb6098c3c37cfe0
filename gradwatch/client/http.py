"""One HTTP connection to a collector, its failures told apart: what a later try may mend, and what none can."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import Problem

BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
TOO_LARGE = 413
CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0
"""Below what servers and proxies close an idle connection after, so that none is reused while it closes."""


class Http:
    """Requests below an address such as http://127.0.0.1:8420; connections are kept open between them."""

    def __init__(self, url: str, api_key: str = "", timeout: float = 30.0) -> None:
        # A training script that only logs to disk never pays for this import.
        import httpx  # noqa: PLC0415

        self._failure: tuple[type[Exception], ...] = (httpx.RequestError, httpx.InvalidURL)
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
            # Certificates cost 30 ms to load; a proxy of the environment cannot reach this machine's own addresses.
            verify=self.url.startswith("https:"),
            trust_env=not is_loopback(url),
        )

    def request(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The body of the answer; UnavailableError or RefusedError where it is no success."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        try:
            answer = self._client.request(method, path, content=content, headers=headers, params=given)
        except self._failure as error:
            raise UnavailableError(
                f"no collector answers at {self.url} ({error}): start one with `gradwatch up`, or set GRADWATCH_URL"
            ) from error
        if answer.is_success:
            return answer.content
        detail = _detail(answer.content)
        told = detail or f"HTTP {answer.status_code}, and not from a gradwatch collector: check GRADWATCH_URL"
        message = f"{method} {self.url}{path}: {told}"
        # A proxy or a stranger on the port refuses for reasons of its own; a proxy's limit on size holds all the same.
        if answer.status_code in BUSY or (detail is None and answer.status_code != TOO_LARGE):
            raise UnavailableError(message, _seconds(answer.headers.get("Retry-After", "")))
        raise RefusedError(message, answer.status_code)

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._client.close()

    def __enter__(self) -> Http:
        """The connection itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _detail(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _seconds(text: str) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date."""
    if text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
