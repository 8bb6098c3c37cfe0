"""Lines of pairs are read where they are surely a log of the training, and only there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.importers.console import MAX_HELD_PAIRS, Console
from gradwatch.importers.console_pairs import read_pairs
from gradwatch.importers.source import Source


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("iter=0000 reward=-107.7 ESS=0.59", {"iter": 0, "reward": -107.7, "ESS": 0.59}),
        ("step 3000: train loss 4.0390, val loss 4.0427", {"step": 3000, "train loss": 4.039, "val loss": 4.0427}),
        ("Epoch [3/10] Loss: 0.5", {"Epoch": 3, "Loss": 0.5}),
        ("Step 100/5000 | loss 2.31 | lr 1e-4", {"Step": 100, "loss": 2.31, "lr": 1e-4}),
        ("Epoch 1/10, Train Loss: 0.5, Val Acc: 92.1%", {"Epoch": 1, "Train Loss": 0.5, "Val Acc": 92.1}),
        ("epoch 1 batch 5 loss 0.3", {"epoch": 1, "batch": 5, "loss": 0.3}),
        ("epoch: 1 step: 100 loss: 0.5", {"epoch": 1, "step": 100, "loss": 0.5}),
        ("global_step=500, episodic_return=12.3", {"global_step": 500, "episodic_return": 12.3}),
        ("Iter 10, loss: 1,234.5", {"Iter": 10, "loss": 1234.5}),
        ("[Epoch 5] loss: 0.3", {"Epoch": 5, "loss": 0.3}),
        ("Epoch: [0][ 10/500]\tTime  0.5 ( 0.6)\tLoss 6.9 (6.9)", {"Epoch": 0, "Time": 0.5, "Loss": 6.9}),
        ("| epoch   1 | lr 5.00 | loss  6.9 |", {"epoch": 1, "lr": 5.0, "loss": 6.9}),
        ("Final metrics: loss_critic=-0.5, entropy=2.0", {"loss_critic": -0.5, "entropy": 2.0}),
        (
            " iteration      100/    1000 | elapsed time per iteration (ms): 12.5 | lm loss: 1.0E+00 |"
            " number of nan iterations:   0 |",
            {"iteration": 100, "elapsed time per iteration (ms)": 12.5, "lm loss": 1, "number of nan iterations": 0},
        ),
    ],
)
def test_lines_of_a_training(line: str, values: dict[str, float]) -> None:
    row = read_pairs(line)
    assert row is not None
    assert row.values == values


def test_nan_and_units() -> None:
    row = read_pairs("iter 3010: loss nan, time 1019.95ms, mfu 14.12%")
    assert row is not None
    assert math.isnan(row.values["loss"])
    assert (row.values["time"], row.values["mfu"]) == (1019.95, 14.12)


@pytest.mark.parametrize(
    "prefix",
    [
        "2025-11-07 10:26:34.540 | INFO     | __main__:_log_metrics:139 - ",
        "2024-01-01 10:00:00,123 - INFO - trainer - ",
        "INFO:root:",
        "[2024-01-01 10:00:00] ",
        "[INFO|trainer.py:450] 2025-05-28 16:58:05,037 >> ",
        "[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] ",
        "I0718 19:14:23.746669  310893 train.cc:3668] ",
    ],
)
def test_the_prefixes_of_loggers_are_stripped(prefix: str) -> None:
    row = read_pairs(f"{prefix}step=5, loss=0.25")
    assert row is not None
    assert row.values == {"step": 5, "loss": 0.25}


@pytest.mark.parametrize(
    "line",
    [
        "dataset len: 7473",
        "torch version: 2.1.0, cuda: 12.1, step: 1.2.3",
        "Namespace(batch_size=32, epochs=10, lr=0.001, loss_weight=1.0)",
        "Listening on 127.0.0.1:8265, step: 10.0.0.1",
        "Saved checkpoint at step 500, size: 3 GB",
        "Resuming from step 100, epoch 2",
        "Episode 12 finished after 200 timesteps",
        "Training for 3 epochs, 12 steps per epoch",
        "0x1f step: 0x20 loss: 0x1",
        "2024-05-01 10:00:00 step: 2024-05-01, loss: 10:30:11",
        "epochs: 10, lr: 0.001",
        "batch: 32, lr: 0.1",
        "Step 1: x = 5, y = 3",
        "Step 2: The score = 5 and 3 + 4 = 7",
        "Epoch 3 took 12 s",
        "loss=/path/1 step=https://example.org/2 reward=3",
        "eval_steps: 100 (from args) != 500 (from trainer_state.json)",
        "Num examples = 11,000 | Num Epochs = 3 per device",
        "wandb: loss 0.5",
    ],
)
def test_lines_that_are_no_log(line: str) -> None:
    row = read_pairs(line)
    assert row is None or not row.values


def test_settings_are_settings() -> None:
    row = read_pairs("Total steps: 58, num_warmup_steps: 0")
    assert row is not None
    assert (row.values, row.config) == ({}, {"Total steps": 58, "num_warmup_steps": 0})


def read(tmp_path: Path, text: str) -> tuple[list[dict[str, float]], str]:
    path = tmp_path / "run.log"
    path.write_text(text)
    source = Source(path)
    return [row.values for row in Console().rows(source)], source.format


def test_pairs_are_rows_where_nothing_else_is(tmp_path: Path) -> None:
    assert read(tmp_path, "step=1 loss=2\nhello\nstep=2 loss=1\n") == (
        [{"step": 1, "loss": 2}, {"step": 2, "loss": 1}],
        "generic_console",
    )


def test_pairs_are_noise_beside_a_form_of_their_own(tmp_path: Path) -> None:
    assert read(tmp_path, "step=1 loss=2\n{'loss': 0.5}\nstep=2 loss=1\n") == ([{"loss": 0.5}], "hf_console_dict")


def test_pairs_are_not_held_back_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("step=1 loss=2\n" * (MAX_HELD_PAIRS + 500))
    assert sum(1 for _ in Console().rows(Source(path))) == MAX_HELD_PAIRS + 500


def test_a_bar_is_no_row(tmp_path: Path) -> None:
    assert read(tmp_path, "Epoch 1:  50%|█ | 5/10 [00:01<00:01, loss=0.5, acc=0.9]\n")[0] == []
