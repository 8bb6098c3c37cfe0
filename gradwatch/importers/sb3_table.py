"""stable-baselines3's boxed tables, and those of the older baselines without sections (format `sb3_table`).

---------------------------------
| rollout/           |          |
|    ep_len_mean     | 134      |
---------------------------------
"""

from __future__ import annotations

from gradwatch.importers.base import Row
from gradwatch.importers.number_text import number

MAX_KEYS = 1000
MAX_WIDTH = 1000
INDENT = "    "


class TableReader:
    """Collects the lines between two rules into one row; other lines between them were written by someone else."""

    format = "sb3_table"

    def __init__(self) -> None:
        self._open = False
        self._section = ""
        self._values: dict[str, float] = {}

    def read(self, segment: str) -> list[Row]:
        """Take a line that begins with a bar or a dash; returns the row that it completes."""
        text = segment.strip()
        if len(text) > MAX_WIDTH:
            return []
        if text.strip("-"):
            return self._cells(text) if self._open else []
        if len(text) < 8:
            return []
        rows = self.finish()
        self._open = True
        return rows

    def finish(self) -> list[Row]:
        """The table so far, which a lost last rule need not cost."""
        values, self._values, self._section = self._values, {}, ""
        self._open = False
        return [Row(values)] if len(values) > 1 else []

    def _cells(self, text: str) -> list[Row]:
        cells = text.split("|", 4)
        if len(cells) != 4 or cells[0] or cells[3]:
            return []
        name, content = cells[1].strip(), cells[2].strip()
        if not content:
            self._section = name.rstrip("/")
            return []
        key = f"{self._section}/{name}" if cells[1].startswith(INDENT) and self._section else name
        rows = self._restart() if key in self._values else []
        value = number(content)
        if name and value is not None and len(self._values) < MAX_KEYS:
            self._values[key] = value
        return rows

    def _restart(self) -> list[Row]:
        """A key for the second time: the rule between two tables was lost."""
        section = self._section
        rows = self.finish()
        self._open, self._section = True, section
        return rows
