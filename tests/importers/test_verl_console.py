"""verl's step lines are read with their odd keys and numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.importers.console import Console
from gradwatch.importers.source import Source
from gradwatch.importers.verl_console import read_verl_line


def values(line: str) -> dict[str, float]:
    row = read_verl_line(line)
    assert row is not None
    return row.values


def test_a_step_line_says_its_step_twice() -> None:
    row = read_verl_line("step:7 - actor/pg_loss:0.250 - critic/score/mean:-1e-05")
    assert row is not None
    assert row.step == 7
    assert row.values == {"step": 7.0, "actor/pg_loss": 0.25, "critic/score/mean": -1e-05}


@pytest.mark.parametrize("key", ["train/lr(1e-3)", "actor/Qwen2.5-7B_Search Agent/grad_norm", "val/a:b/mean@30", "a-b"])
def test_keys_keep_their_spaces_parentheses_and_colons(key: str) -> None:
    assert values(f"step:1 - {key}:0.5 - x:1") == {"step": 1.0, key: 0.5, "x": 1.0}


def test_numpy_numbers() -> None:
    assert values("step:1 - a:np.float64(0.25) - b:np.int32(2) - c:np.float64(-1e-05)") == {
        "step": 1.0,
        "a": 0.25,
        "b": 2.0,
        "c": -1e-05,
    }


def test_numbers_that_are_none() -> None:
    read = values("step:1 - a:nan - b:inf - c:np.float64(nan) - d:-inf")
    assert math.isnan(read["a"])
    assert math.isnan(read["c"])
    assert (read["b"], read["d"]) == (math.inf, -math.inf)


def test_none_is_absent() -> None:
    assert values("step:1 - a:None - b:1") == {"step": 1.0, "b": 1.0}


def test_a_line_cut_off_gives_what_was_written() -> None:
    assert values("step:1 - a:0.5 - critic/rew") == {"step": 1.0, "a": 0.5}


def test_text_after_the_last_value_is_dropped() -> None:
    assert values("step:1 - a:0.5 - b:np.float64(0.5) Training Progress") == {"step": 1.0, "a": 0.5, "b": 0.5}


def test_a_line_after_a_bar_is_read() -> None:
    assert values("Training Progress:   0%|  | 1/9 [00:01<?, ?it/s]step:2 - a:1") == {"step": 2.0, "a": 1.0}


@pytest.mark.parametrize(
    "line", ["training/global_step:1 - a:2", "global_step:1 - a:2", "step: 1 - a:2", "step:1 - nothing", "step:x - a:1"]
)
def test_other_lines_are_none(line: str) -> None:
    assert read_verl_line(line) is None


def test_a_rays_workers_log_is_read_as_verls(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        "\x1b[36m(TaskRunner pid=1)\x1b[0m {'actor': {'kl_loss_coef': 0.1,\n"
        "\x1b[36m(TaskRunner pid=1)\x1b[0m step:1 - actor/loss:0.5\n"
        "\x1b[36m(TaskRunner pid=1)\x1b[0m \rTraining Progress:  50%|████▉ | 1/2 [00:01<00:01, 1s/it]"
        "step:2 - actor/loss:0.25\n"
    )
    source = Source(path)
    rows = list(Console().rows(source))
    assert [(row.step, row.values["actor/loss"]) for row in rows] == [(1, 0.5), (2, 0.25)]
    assert source.format == "verl_console"
