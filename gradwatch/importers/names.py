"""What a run is called after the file that it was read from."""

from __future__ import annotations

from pathlib import Path

_NAMELESS = frozenset(
    ("trainer_state", "trainer_log", "progress", "metrics", "log", "logs", "train", "output", "stdout", "0", "monitor")
)


def storable(text: str) -> str:
    """The text in a form that every encoding can write: file names may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def run_name(path: Path, run: str = "") -> str:
    """The run's name within its file, else the file's, else the folder's where the file's says nothing."""
    if run:
        return storable(run)
    stem = storable(path.name.removesuffix(".gz"))
    stem = stem.rpartition(".")[0] or stem
    folder = path.resolve().parent
    if stem.lower() in _NAMELESS or stem.startswith("events.out.tfevents"):  # whose folder is the run, as TensorBoard has it
        folder = folder.parent if folder.name.startswith("checkpoint-") else folder
        return storable(folder.name) or stem
    return stem
