"""A copied checkpoint is there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwatch.checkpoints import copying
from gradwatch.checkpoints.copying import copy_checkpoint
from gradwatch.errors import GradwatchError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "out" / "step-50"
    (source / "shard").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "shard" / "a.safetensors").write_bytes(b"\x00\x01")
    return source


def files(root: Path) -> dict[str, bytes]:
    return {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}


def test_a_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"weights")
    assert copy_checkpoint(str(tmp_path / "a.pt"), tmp_path / "best") == tmp_path / "best" / "a.pt"
    assert files(tmp_path / "best") == {"a.pt": b"weights"}


def test_a_folder_is_copied_with_all_that_is_in_it(folder: Path, tmp_path: Path) -> None:
    copy_checkpoint(folder.as_uri(), tmp_path / "best")
    assert files(tmp_path / "best" / "step-50") == files(folder)


def test_a_copy_replaces_the_one_that_is_there(folder: Path, tmp_path: Path) -> None:
    copy_checkpoint(str(folder), tmp_path / "best")
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "shard" / "a.safetensors").unlink()
    copy_checkpoint(str(folder), tmp_path / "best")
    assert files(tmp_path / "best" / "step-50") == {"config.json": b'{"a": 1}'}


def test_a_copy_that_fails_leaves_the_old_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_checkpoint(str(folder), tmp_path / "best")
    before = files(tmp_path / "best")
    (folder / "config.json").write_text("changed")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copying.os, "fsync", full)
    with pytest.raises(GradwatchError, match="No space left on device"):
        copy_checkpoint(str(folder), tmp_path / "best")
    assert files(tmp_path / "best") == before
    assert os.listdir(tmp_path / "best") == ["step-50"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/no/such/checkpoint", "is not on this machine"),
        ("s3://bucket/step-50", "kept elsewhere"),
        ("file://other-host/step-50", "kept elsewhere"),
    ],
)
def test_what_cannot_be_copied_is_said(uri: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(GradwatchError, match=message):
        copy_checkpoint(uri, tmp_path / "best")
    assert not (tmp_path / "best").exists()


def test_a_checkpoint_is_not_copied_onto_or_into_itself(folder: Path) -> None:
    for target in (folder.parent, folder / "shard"):
        with pytest.raises(GradwatchError, match="name another folder"):
            copy_checkpoint(str(folder), target)
    assert sorted(files(folder)) == ["config.json", "shard/a.safetensors"]
