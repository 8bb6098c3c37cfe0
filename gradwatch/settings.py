"""Every setting of gradwatch in one table: its environment variable, its default and what it means.

A training machine needs no pydantic for it. `docs/settings.md` is generated from the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from gradwatch.errors import SettingsError

ONLINE, OFFLINE, INPROCESS, DISABLED = MODES = ("online", "offline", "inprocess", "disabled")
DEFAULT_URL = "http://127.0.0.1:8420"
DEFAULT_DATA = Path("gradwatch-data")


class Setting(NamedTuple):
    """One row of the table. `name` is the field of `Settings`, `parse` raises ValueError with what is allowed."""

    name: str
    variable: str
    default: Any
    parse: Callable[[str], Any]
    meaning: str


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
        raise ValueError("an address such as http://127.0.0.1:8420")
    return text.rstrip("/")


def _has_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:  # no number, or one above 65535
        return False


def _mode(text: str) -> str:
    if text not in MODES:
        raise ValueError(f"one of {', '.join(MODES)}")
    return text


def _positive(text: str) -> float:
    number = float(text) if text.replace(".", "", 1).isdigit() else 0.0
    if not 0 < number < 1e12:
        raise ValueError("a number above 0")
    return number


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def _path(text: str) -> Path:
    return Path(text).expanduser()


SETTINGS = (
    Setting("url", "GRADWATCH_URL", DEFAULT_URL, _url, "the collector's address"),
    Setting("api_key", "GRADWATCH_API_KEY", "", str, "the key that the collector asks for; empty: none"),
    Setting("project", "GRADWATCH_PROJECT", "default", str, "the project that new runs belong to"),
    Setting("run_id", "GRADWATCH_RUN_ID", "", str, "the run's id: processes that share it join one run; empty: a new one"),
    Setting("launch", "GRADWATCH_LAUNCH", "", str, "one start of a job: its processes share an attempt; empty: found out"),
    Setting("mode", "GRADWATCH_MODE", ONLINE, _mode, "online, offline (spool only), inprocess (no collector) or disabled"),
    Setting("dir", "GRADWATCH_DIR", Path("gradwatch-spool"), _path, "folder of the spool, where batches wait for the collector"),
    Setting("data", "GRADWATCH_DATA", DEFAULT_DATA, _path, "folder of the store, of a collector and of mode inprocess"),
    Setting("queue_points", "GRADWATCH_QUEUE_POINTS", 1_000_000, _count, "values that may wait in memory; then the oldest drop"),
    Setting("spool_mb", "GRADWATCH_SPOOL_MB", 2048, _count, "megabytes that may wait on disk; then the oldest drop"),
    Setting("end_seconds", "GRADWATCH_END_SECONDS", 1800.0, _positive, "a followed log that is idle for so many seconds has ended"),
    Setting("flush_seconds", "GRADWATCH_FLUSH_SECONDS", 10.0, _positive, "seconds that a process's end may wait for the collector"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force."""

    url: str
    api_key: str
    project: str
    run_id: str
    launch: str
    mode: str
    dir: Path
    data: Path
    queue_points: int
    spool_mb: int
    end_seconds: float
    flush_seconds: float

    def __repr__(self) -> str:
        """Every field but the key."""
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.name != "api_key")
        return f"Settings({', '.join(shown)}, api_key={'***' if self.api_key else ''!r})"


def load_settings(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings: what is given (None counts as not given), else the environment, else the default.

    Raises SettingsError where a value is not allowed or a name is unknown.
    """
    environment = os.environ if environment is None else environment
    unknown = given.keys() - {one.name for one in SETTINGS}
    if unknown:
        raise SettingsError(f"no setting {sorted(unknown)[0]!r}; there are {', '.join(one.name for one in SETTINGS)}")
    return Settings(**{one.name: _value(one, given.get(one.name), environment) for one in SETTINGS})


def _value(setting: Setting, given: Any, environment: Mapping[str, str]) -> Any:
    said = f"{setting.name}={given!r}" if given is not None else f"{setting.variable}={environment.get(setting.variable)!r}"
    text = environment.get(setting.variable) if given is None else str(given)
    if not text:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingsError(f"{said}: must be {error}") from error
