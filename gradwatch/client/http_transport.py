"""The `Transport` over HTTP: msgpack both ways, compressed where the network is slower than the compression."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from gradwatch.client.http import Http, is_loopback
from gradwatch.errors import UnavailableError
from gradwatch.wire import MSGPACK, VERSION, Ack, Batch, Opened, OpenRun

LEAST_COMPRESSED = 2_000
TIMEOUT = 20.0
T = TypeVar("T")


class HttpTransport:
    """Sends to a collector such as http://127.0.0.1:8420. For one thread at a time."""

    def __init__(self, url: str, api_key: str = "", timeout: float = TIMEOUT) -> None:
        self._http = Http(url, api_key, timeout)
        self._base = f"/api/{VERSION}/runs"
        # Python loads this codec at the first look-up of an address, which may be while the user forks.
        codecs.lookup("idna")
        self._encode = msgspec.msgpack.Encoder().encode
        self._encoding, self._compress = ("", bytes) if is_loopback(url) else _compression()

    def open(self, request: OpenRun) -> Opened:
        """Announce a process; create its run, or join it."""
        return self._post(self._base, request, Opened)

    def send(self, run: str, batch: Batch) -> Ack:
        """Deliver a batch; when this returns, the batch is durable."""
        return self._post(f"{self._base}/{quote(run, safe='')}/batches", batch, Ack)

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._http.close()

    def _post(self, path: str, content: Any, answer: type[T]) -> T:
        body = self._encode(content)
        headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
        if self._encoding and len(body) >= LEAST_COMPRESSED:
            body, headers["Content-Encoding"] = self._compress(body), self._encoding
        received = self._http.request("POST", path, body, headers)
        try:
            return msgspec.msgpack.decode(received, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnavailableError(
                f"what answers at {self._http.url} is no gradwatch collector ({error}): check GRADWATCH_URL"
            ) from error


def _compression() -> tuple[str, Callable[[bytes], bytes]]:
    """Zstandard where it is installed, else the fastest gzip."""
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        return "gzip", lambda body: gzip.compress(body, compresslevel=1)
    return "zstd", zstandard.ZstdCompressor(level=3).compress
