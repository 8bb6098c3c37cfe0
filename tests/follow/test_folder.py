"""What is found at a path, and when."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gradwatch.follow import folder


def add(path: Path, *steps: int) -> None:
    with path.open("a") as log:
        log.writelines(f'{{"step": {step}, "loss": {step}.5}}\n' for step in steps)


def test_a_path_that_is_not_there_yet_is_waited_for(following: Any) -> None:
    place = following.folder / "later" / "run.jsonl"
    follower = following.start(place)
    following.until(lambda: "waiting for it" in follower.trouble)
    place.parent.mkdir()
    add(place, 0)
    following.has("run", "loss", 0)
    assert follower.trouble == ""


def test_new_files_and_folders_are_found(following: Any) -> None:
    add(following.folder / "a.jsonl", 0)
    following.start()
    following.has("a", "loss", 0)
    (following.folder / "deep" / "er").mkdir(parents=True)
    add(following.folder / "deep" / "er" / "b.jsonl", 0)
    following.has("b", "loss", 0)


def test_the_name_that_is_given_is_the_runs(following: Any) -> None:
    add(following.folder / "a.jsonl", 0)
    following.start(following.folder / "a.jsonl", name="mine")
    following.has("mine", "loss", 0)
    following.stop()
    following.start(name="all", project="other")
    assert following.query.state(following.run("mine")).info.project == "default"


def test_what_is_no_log_disturbs_nobody(following: Any) -> None:
    place = following.folder
    (place / "weights.txt").write_bytes(bytes(range(256)) * 100)
    (place / "README.txt").write_text("Read me.\n")
    (place / "empty.log").touch()
    (place / "pipe.log").unlink(missing_ok=True)
    os.mkfifo(place / "pipe.log")
    (place / "gone.log").symlink_to(place / "nowhere")
    (place / ".hidden").mkdir()
    add(place / ".hidden" / "h.jsonl", 0)
    add(place / "run.jsonl", 0)
    following.start()
    following.has("run", "loss", 0)
    following.until(lambda: following.state("weights.txt") == following.state("empty.log") == "waiting")
    assert [one.info.name for one in following.query.states()] == ["run"]
    assert {one.path.name for one in following.statuses()} == {"weights.txt", "README.txt", "empty.log", "run.jsonl"}


def test_folders_that_are_left_out_are_left_out(following: Any) -> None:
    following.memory = following.folder / "memory"
    (following.folder / "data").mkdir()
    add(following.folder / "data" / "a.jsonl", 0)
    add(following.folder / "b.jsonl", 0)
    following.start(exclude=[following.folder / "data"])
    following.has("b", "loss", 0)
    assert [one.path.name for one in following.statuses()] == ["b.jsonl"]


def test_more_files_than_threads_are_all_read_and_followed(following: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_FOLLOWED", 2)
    monkeypatch.setattr(folder, "REST_SECONDS", 0.1)
    names = [f"run{number}" for number in range(6)]
    for name in names:
        add(following.folder / f"{name}.jsonl", 0, 1)
    following.start()
    for name in names:
        following.has(name, "loss", 0, 1)
    add(following.folder / "run0.jsonl", 2)
    following.has("run0", "loss", 0, 1, 2)
    assert sum(one.state == "following" for one in following.statuses()) <= 2


def test_a_file_is_followed_once_at_a_time(following: Any) -> None:
    add(following.folder / "run.jsonl", 0, 1)
    following.start()
    following.has("run", "loss", 0, 1)
    other = folder.FolderFollower(following.folder, following.collector, memory=following.memory)
    other.start()
    following.until(lambda: [one.state for one in other.statuses()] == ["refused"])
    assert "followed by another process" in other.statuses()[0].trouble
    other.stop()
    other.join(10)
    assert following.written("run") == 2


def test_an_old_file_is_not_put_to_rest_while_it_is_read(following: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "EMPTY_SECONDS", 1.0)
    log = following.folder / "run.jsonl"
    add(log, *range(30_000))
    os.utime(log, (time.time() - 120, time.time() - 120))
    following.start()
    following.until(lambda: following.written("run") == 30_000)
    following.restart()
    add(log, 30_000)
    following.until(lambda: following.written("run") == 30_001)
