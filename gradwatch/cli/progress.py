"""A progress bar on standard error, shown only to a terminal and only where reading takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN_AFTER = 1.0


@contextmanager
def reading(path: Path) -> Iterator[Callable[[int], None] | None]:
    """A callback that is told of every chunk of bytes read from `path`; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(f"reading {path.name}", total=path.stat().st_size if path.exists() else None)
    begun = time.monotonic()
    started = False

    def advance(count: int) -> None:
        nonlocal started
        bar.advance(task, count)
        if not started and time.monotonic() - begun > SHOWN_AFTER:
            started = True
            bar.start()

    try:
        yield advance
    finally:
        if started:
            bar.stop()
