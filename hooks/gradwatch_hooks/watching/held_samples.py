"""Samples that wait for the record of their step, to be sent with each one's influence on the gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gradwatch.schema import Sample


class HeldSamples:
    """Rows as `Run.log_samples` takes them, in the order in which their sequences were given to `roles(...)`.

    A row may say by `sequence` which sequence of the step it is; without it, the rows are the step's sequences in order.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, rows: Iterable[Any]) -> None:
        """Hold rows until the step's record is read."""
        for row in rows:
            given: dict[str, Any] = msgspec.structs.asdict(row) if isinstance(row, Sample) else dict(row)
            given.setdefault("sequence", len(self._rows))
            self._rows.append(given)

    def take(self) -> list[dict[str, Any]]:
        """The rows of the step that ends here."""
        rows, self._rows = self._rows, []
        return rows


def with_influence(rows: Sequence[Mapping[str, Any]], influence: Sequence[float]) -> list[dict[str, Any]]:
    """Rows ready to be sent; an influence that the user gave, or that nobody measured, stays as it is."""
    ready = []
    for row in rows:
        given = {field: value for field, value in row.items() if field != "sequence"}
        at = row["sequence"]
        if given.get("influence") is None and at is not None and 0 <= at < len(influence):
            given["influence"] = influence[at]
        ready.append(given)
    return ready
