"""`python -m gradwatch.collector --data DIR`: a collector alone, without a page."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from gradwatch.collector.access import Access, check_bind
from gradwatch.collector.app import create_app
from gradwatch.collector.core import Collector
from gradwatch.collector.judging import ChildJudge
from gradwatch.collector.server import serve
from gradwatch.errors import GradwatchError
from gradwatch.settings import load_settings
from gradwatch.store import open_store
from gradwatch.watcher import Detecting


def main() -> int:
    """Serve until it is told to stop; the first line that it prints is its address."""
    parser = argparse.ArgumentParser(prog="python -m gradwatch.collector", description=__doc__)
    parser.add_argument("--data", type=Path, help="the store's folder (GRADWATCH_DATA)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8420, help="0 takes a free one")
    parser.add_argument("--no-watcher", action="store_true", help="run no detectors")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _serve(options)
    except GradwatchError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _serve(options: argparse.Namespace) -> int:
    settings = load_settings(data=options.data)
    check_bind(options.host, settings.api_key)
    store = open_store(settings.data)
    judge = ChildJudge()
    collector = Collector(store, judge=Detecting(()) if options.no_watcher else judge)
    collector.start()
    try:
        app = create_app(collector, Access(options.host, settings.api_key))
        serve(app, options.host, options.port, lambda url: print(f"gradwatch collector at {url}", flush=True))  # noqa: T201
    finally:
        collector.close()
        judge.close()
        store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
