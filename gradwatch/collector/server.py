"""Serves a collector's application with uvicorn until it is told to stop; nothing that was received is lost then."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from time import monotonic, sleep

import uvicorn
from fastapi import FastAPI

from gradwatch.errors import SettingsError

KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
START_SECONDS = 20.0


class Server(uvicorn.Server):
    """Tells whoever waits for news that the end is near, before it waits for them."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until it is told to stop, and come back then."""
        with _surviving():
            super().run(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the waits, answer what was asked, stop."""
        stopping = getattr(self.config.app.state, "stopping", None)  # type: ignore[union-attr]
        if stopping is not None:
            stopping.set()
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. SettingsError where the address cannot be had."""
    wrong = f"cannot listen at {host} port {port}: name another host or port"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
    except OSError as error:
        raise SettingsError(f"{wrong} ({error})") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(f"{wrong} ({error})") from error
    return listener


def address(listener: socket.socket, host: str) -> str:
    """The URL of a bound socket, as somebody on this machine would ask for it."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"


def server(app: FastAPI) -> Server:
    """The server for an application."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="websockets-sansio",
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)


def serve(app: FastAPI, host: str, port: int, started: Callable[[str], None] = lambda _url: None) -> None:
    """Serve until SIGTERM or SIGINT; `started` gets the address. Call `Collector.close` afterwards."""
    listener = bind(host, port)
    listener.listen(2048)
    started(address(listener, host))
    server(app).run([listener])


@contextmanager
def _surviving() -> Iterator[None]:
    """Come back from SIGTERM and SIGINT, which uvicorn raises again when it is done: what was received is still to be committed."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def running(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve on a thread as long as the block lasts; gives the address."""
    listener = bind(host, port)
    one = server(app)
    thread = Thread(target=one.run, args=([listener],), name="gradwatch-server", daemon=True)
    thread.start()
    deadline = monotonic() + START_SECONDS
    while not one.started and thread.is_alive() and monotonic() < deadline:
        sleep(0.005)
    try:
        yield address(listener, host)
    finally:
        one.should_exit = True
        thread.join()
