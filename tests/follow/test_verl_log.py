"""verl's file log, followed: NaN and infinities are null in it, and a training that starts again truncates it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class FileLog:
    """Writes as verl's `FileLogger` does: opened to be overwritten, unbuffered, what is not finite as null."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb", buffering=0)

    def log(self, steps: Iterable[int], norm: float | None) -> None:
        for step in steps:
            data = {"actor/grad_norm": norm, "actor/Qwen2.5-7B_Search Agent/grad_norm": 2.0, "critic/score/mean": 0.5}
            self.file.write(json.dumps({"step": step, "data": data}).encode() + b"\n")


def test_a_log_of_verls_is_followed_and_its_nulls_are_not_finite(following: Any) -> None:
    log = FileLog(following.folder / "dr-mas.jsonl")
    log.log([1, 2], 0.5)
    following.start()
    following.has("dr-mas", "actor/grad_norm", 1, 2)
    log.log([3], None)
    following.has("dr-mas", "actor/grad_norm", 1, 2, 3)
    points = following.points("dr-mas")
    assert math.isnan(points["actor/grad_norm", 1][-1][1])
    assert points["actor/Qwen2.5-7B_Search Agent/grad_norm", 1] == [(1, 2.0), (2, 2.0), (3, 2.0)]
    log.file.close()


def begun(following: Any) -> FileLog:
    """A log of five steps that is followed."""
    first = FileLog(following.folder / "dr-mas.jsonl")
    first.log(range(1, 6), 0.5)
    following.start()
    following.has("dr-mas", "actor/grad_norm", *range(1, 6))
    return first


def test_a_training_of_verls_that_starts_again_is_another_attempt(following: Any) -> None:
    first, again = begun(following), FileLog(following.folder / "dr-mas.jsonl")
    again.log([1, 2], 0.75)
    following.has("dr-mas", "actor/grad_norm", 1, 2, attempt=2)
    again.log([3], 0.75)
    following.has("dr-mas", "actor/grad_norm", 1, 2, 3, attempt=2)
    following.has("dr-mas", "actor/grad_norm", *range(1, 6), attempt=1)
    first.file.close()
    again.file.close()


def test_a_training_of_verls_that_is_resumed_is_another_attempt_from_its_step_on(following: Any) -> None:
    first, again = begun(following), FileLog(following.folder / "dr-mas.jsonl")
    again.log([4, 5], 0.75)
    following.has("dr-mas", "actor/grad_norm", 4, 5, attempt=2)
    first.file.close()
    again.file.close()
