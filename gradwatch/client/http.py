"""One HTTP connection to a collector, its failures told apart: what a later try may mend, and what none can."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec

from gradwatch.errors import RefusedError, UnavailableError
from gradwatch.wire import Problem

BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
CONNECT_SECONDS = 5.0


class Http:
    """Requests below an address such as http://127.0.0.1:8420; connections are kept open between them."""

    def __init__(self, url: str, api_key: str = "", timeout: float = 30.0) -> None:
        # A training script that only logs to disk never pays for this import.
        import httpx  # noqa: PLC0415

        self._failure: type[Exception] = httpx.TransportError
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Timeout(timeout, connect=CONNECT_SECONDS)
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=limits)

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
        message = f"{method} {self.url}{path}: {_detail(answer.content, answer.status_code)}"
        if answer.status_code in BUSY:
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


def _detail(body: bytes, status: int) -> str:
    try:
        return msgspec.json.decode(body, type=Problem).detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"HTTP {status}, and not from a gradwatch collector: check GRADWATCH_URL"


def _seconds(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdigit() else None
