"""A small HTTP server that speaks wire v1, remembers what it was sent, and misbehaves as a test tells it to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from gradwatch.schema import Point
from gradwatch.wire import MSGPACK, PROBLEM, Ack, Batch, Opened, OpenRun, Problem, unpack

Misbehaviour = Callable[["Answering"], bool]
"""Answers a request in the server's stead; False where the server shall answer it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answering)
        self.misbehave: Misbehaviour = lambda request: False
        self.ack: dict[str, Any] = {}
        self.opened: list[OpenRun] = []
        self.batches: dict[str, Batch] = {}
        self.requests = 0
        self.is_up = True
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the client gave up is no error of the test."""

    def points(self) -> list[Point]:
        with self.lock:
            return [point for batch in self.batches.values() if batch.columns is not None for point in unpack(batch.columns)]

    def values(self, metric: str) -> list[float]:
        return [point.value for point in self.points() if point.series.source_key == metric]

    def events(self, kind: str) -> list[str]:
        return [event.message for batch in list(self.batches.values()) for event in batch.events if event.kind == kind]


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.server.requests += 1
        self.server.headers.append(dict(self.headers))
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.is_up:
            self.hang_up()
            return
        if self.server.misbehave(self):
            return
        if self.path.endswith("/runs"):
            request = msgspec.msgpack.decode(self.body, type=OpenRun)
            self.server.opened.append(request)
            name = request.name or request.id
            self.answer(Opened(run=request.id, name=name, attempt=1, created=True, page=f"/run/{request.id}"))
        else:
            self._take(msgspec.msgpack.decode(self.body, type=Batch))

    def _take(self, batch: Batch) -> None:
        with self.server.lock:
            known = batch.id in self.server.batches
            self.server.batches.setdefault(batch.id, batch)
        self.answer(Ack(sequence=0, points=0, duplicate=known, **self.server.ack))

    def answer(self, content: Any, status: int = 200, kind: str = MSGPACK, headers: dict[str, str] | None = None) -> bool:
        body = content if isinstance(content, bytes) else msgspec.msgpack.encode(content)
        self.send_response(status)
        for key, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)
        return True

    def problem(self, status: int, detail: str = "no", headers: dict[str, str] | None = None) -> bool:
        return self.answer(msgspec.json.encode(Problem(title="no", status=status, detail=detail)), status, PROBLEM, headers)

    def hang_up(self) -> bool:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def serving(port: int = 0) -> Iterator[Server]:
    server = Server(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.is_up = False
        server.shutdown()
        server.server_close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until(claim: Callable[[], object], seconds: float = 10.0) -> None:
    """Until the claim holds; an AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not claim():
        assert time.monotonic() < deadline, "it did not come true in time"
        pause.wait(0.01)
