"""Logs that are written anew each time, and event files, while they are followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.summary.writer.record_writer import RecordWriter


def state(steps: int, first_loss: float = 1.0) -> str:
    history = [{"step": step, "loss": first_loss / step, "epoch": step / 10} for step in range(1, steps + 1)]
    return json.dumps({"best_metric": steps, "global_step": steps, "log_history": history, "max_steps": 100})


def objects(steps: int) -> str:
    return json.dumps([{"step": step, "loss": 1 / step} for step in range(1, steps + 1)], indent=1)


def columns(steps: int) -> str:
    numbers = list(range(1, steps + 1))
    return json.dumps({"val_loss": [2 / step for step in numbers[:-1]], "loss": [1 / step for step in numbers], "step": numbers})


def lists(steps: int) -> str:
    train = [{"step": step, "loss": 1 / step} for step in range(1, steps + 1)]
    return json.dumps({"train": train, "eval": [{"step": step, "accuracy": 0.5} for step in range(2, steps + 1, 2)]})


@pytest.mark.parametrize("write", [state, objects, columns, lists])
def test_of_a_document_that_is_written_anew_only_what_is_new_is_told(following: Any, write: Callable[[int], str]) -> None:
    log = following.folder / "history.json"
    log.write_text(write(4))
    following.start()
    following.has("history", "loss", 1, 2, 3, 4)
    log.write_text(write(7))
    following.has("history", "loss", *range(1, 8))
    following.restart()
    log.write_text(write(9))
    following.has("history", "loss", *range(1, 10))
    found = following.points("history")
    assert {attempt for _, attempt in found} == {1}
    assert following.written("history") == sum(map(len, found.values()))


def test_a_document_of_another_training_is_another_attempt(following: Any) -> None:
    log = following.folder / "trainer_state.json"
    log.write_text(state(5))
    following.start()
    following.has("logs", "loss", 1, 2, 3, 4, 5)
    log.write_text(state(2, first_loss=3.0))
    following.has("logs", "loss", 1, 2, attempt=2)
    log.write_text(state(3, first_loss=3.0))
    following.has("logs", "loss", 1, 2, 3, attempt=2)


def test_half_a_document_is_no_other_training(following: Any) -> None:
    log = following.folder / "trainer_state.json"
    log.write_text(state(5))
    following.start()
    following.has("logs", "loss", 1, 2, 3, 4, 5)
    log.write_text(state(9)[:-60])
    following.until(lambda: len(following.points("logs")["loss", 1]) > 5)
    log.write_text(state(9))
    following.has("logs", "loss", *range(1, 10))


def test_the_states_of_a_trainers_checkpoints_are_one_run(following: Any) -> None:
    for step in (2, 5):
        folder = following.folder / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(state(step))
        if step == 2:
            following.start()
        following.has("out", "loss", *range(1, step + 1))
    assert len(following.query.states()) == 1
    assert following.written("out") == 10


class EventFile:
    """An event file as TensorBoard's own writer writes it."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("ab")
        self._writer = RecordWriter(self._stream)  # type: ignore[no-untyped-call]
        self.write(Event(wall_time=1.0, file_version="brain.Event:2"))

    def write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())  # type: ignore[no-untyped-call]
        self._stream.flush()

    def scalar(self, tag: str, step: int, value: float) -> None:
        self.write(Event(wall_time=100.0 + step, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])))

    def close(self) -> None:
        self._stream.close()


def test_an_event_file_is_read_as_it_is_written(following: Any) -> None:
    file = EventFile(following.folder / "events.out.tfevents.1.host")
    following.start()
    for step in range(1, 5):
        file.scalar("loss", step, 0.5)
        file.scalar("reward", 10 * step, float("nan"))
        following.has("logs", "loss", *range(1, step + 1))
        following.has("logs", "reward", *range(10, 10 * step + 1, 10))
    file.close()


def test_an_event_that_is_half_written_is_read_when_it_is_whole(following: Any) -> None:
    path = following.folder / "events.out.tfevents.1.host"
    file = EventFile(path)
    file.scalar("loss", 1, 0.5)
    file.scalar("loss", 2, 0.25)
    file.close()
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    following.start()
    following.has("logs", "loss", 1)
    with path.open("ab") as out:
        out.write(content[-7:])
    following.has("logs", "loss", 1, 2)
