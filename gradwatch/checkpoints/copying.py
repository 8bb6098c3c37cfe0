"""Copies a saved checkpoint, file or folder, so that the copy is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gradwatch.errors import GradwatchError


def copy_checkpoint(uri: str, folder: Path) -> Path:
    """Copy what `uri` names (a path or file: address of this machine) into the folder, replacing a copy that is there.

    Returns the copy's path. Raises GradwatchError where there is nothing to copy or it cannot be written; the folder then is as
    before.
    """
    source = local_path(uri)
    if not source.exists():
        raise GradwatchError(
            f"checkpoint {uri} is not on this machine (or was deleted): copy it by hand, or run this where it was saved"
        )
    target = folder / source.resolve().name
    if target.resolve() == source.resolve() or source.resolve() in target.resolve().parents:
        raise GradwatchError(f"{folder} holds the checkpoint {uri} itself: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".gradwatch-", dir=folder) as scratch:
            copy = Path(scratch) / source.name
            _copy(source, copy)
            _swap(copy, target, Path(scratch) / "before")
    except OSError as error:
        raise GradwatchError(
            f"{uri} cannot be copied to {folder} ({error.strerror or error}); is there room, may it be written?"
        ) from error
    return target


def local_path(uri: str) -> Path:
    """The path that an address names; GradwatchError where it names another machine's."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if len(parts.scheme) > 1 and "://" in uri:
        raise GradwatchError(f"checkpoint {uri} is kept elsewhere: fetch it with that storage's own tools")
    return Path(uri).expanduser()


def _copy(source: Path, copy: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copy2(source, copy)
    for file in [copy, *copy.rglob("*")]:
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def _swap(copy: Path, target: Path, before: Path) -> None:
    """Put the copy in the target's place; a folder cannot be renamed onto a full one, so the old one steps aside first."""
    if target.is_dir() or (target.exists() and copy.is_dir()):
        target.rename(before)
    try:
        copy.replace(target)
    except OSError:
        if before.exists():
            before.rename(target)
        raise
