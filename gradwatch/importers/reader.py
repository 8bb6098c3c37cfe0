"""A path to logs: which files of a folder are logs, of which format each is, and its points block by block."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from gradwatch.errors import UnreadableLogError
from gradwatch.importers import IMPORTERS
from gradwatch.importers.axis import place
from gradwatch.importers.base import Importer
from gradwatch.importers.blocks import Blocks, RunLog
from gradwatch.importers.source import Source
from gradwatch.schema import Block

_LOG_SUFFIXES = frozenset(
    ".json .jsonl .ndjson .csv .tsv .log .txt .out .err .stdout .stderr .console .ipynb .gz .tfevents .v2".split()
)
_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
_MAX_FILES = 10_000


class LogFile:
    """One file that some importer recognised. `runs`, `format` and `warnings` are complete once `blocks` is exhausted."""

    def __init__(self, path: Path, progress: Callable[[int], None] | None = None) -> None:
        self._source = Source(path, progress)
        self._importer = _recognise(path, self._source)
        self.size = path.stat().st_size
        self._blocks = Blocks(self._source.warn)
        self.path = path

    @property
    def format(self) -> str:
        """The format's name, as finely as the content told it."""
        return self._source.format or self._importer.format

    @property
    def runs(self) -> dict[str, RunLog]:
        """What the file told of each of its runs, by the run's name within the file ("" where there is one)."""
        return self._blocks.runs

    @property
    def warnings(self) -> list[str]:
        """What a reader of the report must know of how the file was read."""
        return self._source.all_warnings()

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """The file's points as (run within the file, block). UnreadableLogError where it holds no record at all."""
        try:
            yield from self._blocks.of(place(self._importer.rows(self._source), self._source))
        except OSError as error:
            raise UnreadableLogError(
                f"{self.path}: reading failed ({error.strerror or error}); is the disk still there?"
            ) from error
        if not self.runs:
            reasons = "".join(f" ({warning})" for warning in self.warnings[:2])
            raise UnreadableLogError(
                f"{self.path}: read as {self.format}, but it holds no metrics{reasons}; {_advice(self._source.head())}"
            )


def find_logs(path: Path) -> list[Path]:
    """The log files under a path: the file itself, or those of a folder, without the older states of one run's checkpoints."""
    mode = _mode(path)
    if stat.S_ISREG(mode):
        return [path]
    if not stat.S_ISDIR(mode):
        # Opening a pipe would wait for its writer, and a device never ends.
        raise UnreadableLogError(f"{path}: neither a file nor a folder; save what it gives to a file and name that")
    files: list[Path] = []
    for file in sorted(path.rglob("*")):
        if len(files) >= _MAX_FILES:
            raise UnreadableLogError(f"{path}: more than {_MAX_FILES:,} files here may be logs; name a folder further down")
        if file.is_file() and looks_like_log(file.relative_to(path)):
            files.append(file)
    found = newest_states(files)
    if not found:
        raise UnreadableLogError(f"{path}: no file in this folder looks like a training log; give the log's own path")
    return found


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UnreadableLogError(f"{path}: no such file or folder; check the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableLogError(f"{path}: cannot be reached ({reason}); check the path") from error


def looks_like_log(file: Path) -> bool:
    """Whether the name of a file, as its path from the folder that is searched, is one that logs have."""
    if any(part.startswith(".") for part in file.parts):
        return False
    return file.suffix.lower() in _LOG_SUFFIXES or "tfevents" in file.name or not file.suffix


def newest_states(files: list[Path]) -> list[Path]:
    """Of `run/checkpoint-N/trainer_state.json` only the one with the largest N: it holds the others' history."""
    newest: dict[Path, tuple[int, Path]] = {}
    kept = []
    for file in files:
        match = _CHECKPOINT.match(file.parent.name)
        if file.name != "trainer_state.json" or match is None:
            kept.append(file)
            continue
        at = (int(match[1]), file)
        newest[file.parent.parent] = max(newest.get(file.parent.parent, at), at)
    return sorted([*kept, *(file for _, file in newest.values())])


def recognise(head: bytes) -> Importer | None:
    """The importer for a file that begins with `head`, if any is."""
    return next((importer for importer in IMPORTERS if importer.recognises(head)), None)


def _recognise(path: Path, source: Source) -> Importer:
    try:
        head = source.head()
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableLogError(f"{path}: cannot be read ({reason}); check that it exists and may be read") from error
    if not head.strip():
        raise UnreadableLogError(f"{path}: {_why_empty(path)}")
    importer = recognise(head)
    if importer is not None:
        return importer
    raise UnreadableLogError(
        f"{path}: not a training log that gradwatch knows (it looks binary); give a console log, JSON, JSONL, CSV or TensorBoard "
        "events, and save text as UTF-8"
    )


def _why_empty(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    if packed and size > 64:
        return f"nothing can be unpacked from its {size:,} bytes (the gzip stream is damaged or empty); copy it again"
    if packed:
        return "the gzip stream is empty or cut before its content; copy it again, or has the run logged anything yet?"
    return "the file is empty; has the run logged anything yet?"


def _advice(head: bytes) -> str:
    """What to do about a file without a metric, as its beginning tells."""
    if b"\r" in head and b"\n" not in head:
        return "its lines end in bare carriage returns: save it with newlines"
    first = head.lstrip()[:1000].partition(b"\n")[0].strip()
    if re.fullmatch(rb"[-+\d.eE]+(?:[,;\t ]+[-+\d.eE]+)*", first):
        return "its columns have no names: put a header such as `step,loss` above them"
    return "give a log in which a step has numbers, such as trainer_state.json, a console log, CSV, JSONL or TensorBoard events"
