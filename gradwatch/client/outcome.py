"""What the collector has answered so far, and what the user is told of it."""

from __future__ import annotations

import time
from collections import Counter
from urllib.parse import urljoin

from gradwatch.client.notices import Notices
from gradwatch.client.queue import Loss
from gradwatch.client.splitting import points_of
from gradwatch.schema import SEVERITIES, Advice, StoredFinding
from gradwatch.wire import Ack, Batch, Opened

AWAY_LINE_SECONDS = 60.0


class Outcome:
    """Counts and news of one process's part in a run. Written by the background thread, read by anyone."""

    def __init__(self, url: str, notices: Notices) -> None:
        self._url = url
        self._notices = notices
        self.opened: Opened | None = None
        self.page = ""
        self.points = 0
        self.refused = 0
        self.lost = 0
        self.cursor = 0.0
        self.advice: list[Advice] = []
        self.findings: dict[str, StoredFinding] = {}
        self._away = False
        self._away_said = -AWAY_LINE_SECONDS

    def joined(self, opened: Opened) -> None:
        """The collector knows the process."""
        first, self.opened = self.opened is None, opened
        self.page = urljoin(f"{self._url}/", opened.page) if self._url and opened.page else self._url
        if first:
            where = f" → {self.page}" if self.page else ""
            self._notices.say(f"run {opened.name or opened.run} (id {opened.run}, attempt {opened.attempt}){where}")

    def acked(self, batch: Batch, ack: Ack) -> None:
        """A batch is durable."""
        self.points += points_of(batch)
        self.cursor = ack.cursor
        self.advice = list(ack.advice)
        for one in ack.findings:
            if one.id not in self.findings and one.status == "open":
                self._notices.say(finding_line(one))
            self.findings[one.id] = one

    def away(self, why: str, kept: str) -> None:
        """The collector does not answer; said once in a while."""
        now = time.monotonic()
        if not self._away and now - self._away_said >= AWAY_LINE_SECONDS:
            self._notices.say(f"{why}. {kept}")
            self._away_said = now
        self._away = True

    def back(self) -> None:
        """The collector answers again."""
        self._away = False

    def lose(self, loss: Loss) -> None:
        """Values that the collector never gets."""
        self.lost += loss.values

    def summary(self, name: str, status: str, waiting: int, folder: str) -> str:
        """The last line: how the run ended, what was sent, what was not, what was found."""
        parts = [f"{self.points:,} points sent"]
        if waiting:
            parts.append(f"{waiting:,} bytes wait in {folder}")
        if self.refused:
            parts.append(f"{self.refused:,} batches refused")
        parts.append(f"{self.lost:,} dropped")
        return f"run {name} {status}: {', '.join(parts)}; findings: {self._counts()}"

    def _counts(self) -> str:
        counts = Counter(one.finding.severity for one in self.findings.values() if one.status == "open" and not one.false_alarm)
        return ", ".join(f"{counts[severity]} {severity}" for severity in reversed(SEVERITIES) if counts[severity]) or "none"


def finding_line(one: StoredFinding) -> str:
    """A new finding in one line."""
    found = one.finding
    role = f" of role {found.role}" if found.role else ""
    return f"{found.severity.upper()} {found.kind} in {found.metric}{role} from step {found.start_step}: {found.message}"
