"""What a page is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from dash import Dash

from gradwatch_dashboards.reader import Reader


class Page(NamedTuple):
    """A page: its address (FastAPI's form, one `{name}` at most), its layout and its callbacks.

    `layout` gets what stands in the address for the name ("" where there is none) and the query string. Callbacks must be
    coroutines that read through the `Reader`: one that blocks would hold up the collector's ingest.
    """

    path: str
    layout: Callable[[Reader, str, str], Awaitable[Any]]
    register: Callable[[Dash, Reader], None]
