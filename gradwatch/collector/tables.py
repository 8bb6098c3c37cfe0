"""Series tables that have come before: a process sends the same one with every batch, and reading it is most of a batch's work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from gradwatch.collector.limits import check_series
from gradwatch.errors import RefusedError
from gradwatch.schema import Series

MOST_SERIES = 100_000
"""Of all tables that are kept, about 50 MB."""


class Tables:
    """The tables that were used last, by how they were sent. Whoever gets one must leave it as it is: others have it as well."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._held = 0
        self._known: OrderedDict[Hashable, list[Series]] = OrderedDict()
        self._owner = Lock()

    def get(self, sent: Hashable, read: Callable[[], list[Series]]) -> list[Series]:
        """The table, which `read` makes of what was sent where it is new. RefusedError where it cannot be used."""
        with self._owner:
            known = self._known.get(sent)
            if known is not None:
                self._known.move_to_end(sent)
                return known
        table = read()
        check_series(table)
        if len(set(table)) != len(table):
            raise RefusedError("series lists a series twice: list each once, and point to it as often as it has values")
        self._keep(sent, table)
        return table

    def _keep(self, sent: Hashable, table: list[Series]) -> None:
        with self._owner:
            if sent not in self._known:
                self._known[sent] = table
                self._held += len(table) + 1
            while self._held > self._most:
                self._held -= len(self._known.popitem(last=False)[1]) + 1
