"""A real Prometheus and a real Alertmanager with the configuration that we ship, its intervals and addresses changed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import yaml
from prometheus.programs import FILES, REPOSITORY, program

SECOND = "1s"
Found = TypeVar("Found")


class Told(NamedTuple):
    """An alert as the receiver got it, and when."""

    at: float
    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


def until(look: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """What `look` finds, as soon as it finds something; AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def receiver() -> Iterator[tuple[str, list[Told]]]:
    """A webhook's address, and the alerts that it is told."""
    told: list[Told] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["version"] == "4"
            now = time.monotonic()
            told.extend(Told(now, self.path, one["status"], one["labels"], one["annotations"]) for one in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Tell `webhook` (an address) of alerts; gives Alertmanager's own address."""
    port = free_port()
    (folder / "alertmanager.yml").write_text(_alertmanager(webhook))
    command = (
        program("prometheus-alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    with _running(folder / "alertmanager.log", *command):
        address = f"http://127.0.0.1:{port}"
        until(lambda: _answers(f"{address}/-/ready"), 30, "Alertmanager is ready")
        yield address


@contextmanager
def prometheus(folder: Path, target: str, api_key: str, alerts: str) -> Iterator[str]:
    """Scrape `target` each second with the key, and send alerts to `alerts` (both addresses); gives Prometheus' own address."""
    port = free_port()
    (folder / "rules.yml").write_text((FILES / "rules.yml").read_text(encoding="utf-8"))
    (folder / "prometheus.yml").write_text(_prometheus(urlsplit(target).netloc, urlsplit(alerts).netloc))
    (folder / "api_key").write_text(api_key)
    command = (
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with _running(folder / "prometheus.log", *command):
        address = f"http://127.0.0.1:{port}"
        until(lambda: _answers(f"{address}/-/ready"), 30, "Prometheus is ready")
        yield address


def asked(prometheus: str, query: str) -> list[str]:
    """What Prometheus answers to an instant query: its values as it writes them."""
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?query={quote(query)}", timeout=5) as answer:
        return [one["value"][1] for one in json.load(answer)["data"]["result"]]


def _prometheus(target: str, alertmanager: str) -> str:
    shipped = yaml.safe_load((FILES / "prometheus.yml").read_text(encoding="utf-8"))
    shipped["global"] |= {"scrape_interval": SECOND, "evaluation_interval": SECOND}
    scrape = shipped["scrape_configs"][0]
    scrape["static_configs"][0]["targets"] = [target]
    scrape["authorization"] = {"credentials_file": "api_key"}
    scrape |= _documented_relabelling()
    shipped["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager]
    return yaml.safe_dump(shipped)


def _documented_relabelling() -> dict[str, Any]:
    """What docs/alerts.md says to write where people reach the page under another address."""
    page = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(page[page.index("    metric_relabel_configs:") :].partition("\n\n")[0])
    return found


def _alertmanager(webhook: str) -> str:
    shipped = yaml.safe_load((FILES / "alertmanager.yml").read_text(encoding="utf-8"))
    shipped["route"] |= {"group_wait": SECOND, "group_interval": SECOND}
    for one in shipped["receivers"]:
        for hook in one.get("webhook_configs", ()):
            hook["url"] = f"{webhook}/{one['name']}"
    return yaml.safe_dump(shipped)


@contextmanager
def _running(log: Path, *command: str) -> Iterator[None]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(url: str) -> bool | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200 or None
    except OSError:
        return None
