"""Log dicts are read in all the shapes that trainers print; settings are not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.importers.base import Row
from gradwatch.importers.console import Console
from gradwatch.importers.console_dict import DictReader
from gradwatch.importers.source import Source


def read(*segments: str) -> list[Row]:
    reader = DictReader()
    rows: list[Row] = []
    for segment in segments:
        joined = reader.goes_on(segment) if reader.is_open else None
        rows += reader.read(segment) if joined is None else joined
    return rows + reader.finish()


def one(*segments: str) -> dict[str, float]:
    (row,) = read(*segments)
    return row.values


def test_plain_numbers() -> None:
    assert one("{'loss': 0.5, 'grad_norm': 1, 'learning_rate': 5e-05, 'epoch': 0.44}") == {
        "loss": 0.5,
        "grad_norm": 1.0,
        "learning_rate": 5e-05,
        "epoch": 0.44,
    }


def test_quoted_numbers() -> None:
    assert one("{'loss': '-0.01406', 'num_tokens': '2.742e+04', 'epoch': '1'}") == {
        "loss": -0.01406,
        "num_tokens": 27420.0,
        "epoch": 1.0,
    }


def test_double_quotes() -> None:
    assert one('{"loss": 0.5, "epoch": 1.0}') == {"loss": 0.5, "epoch": 1.0}


@pytest.mark.parametrize("text", ["nan", "NaN", "'nan'", "float('nan')"])
def test_nan(text: str) -> None:
    values = one(f"{{'loss': {text}, 'grad_norm': nan, 'epoch': 1.0}}")
    assert math.isnan(values["grad_norm"])


@pytest.mark.parametrize(("text", "value"), [("inf", math.inf), ("-inf", -math.inf), ("Infinity", math.inf)])
def test_infinities(text: str, value: float) -> None:
    assert one(f"{{'loss': {text}, 'epoch': 1.0}}")["loss"] == value


def test_none_stands_for_a_metric_that_was_all_nan() -> None:
    (row,) = read("{'loss': 0.5, 'rewards/f/mean': None}")
    assert row.nulls == ("rewards/f/mean",)
    assert math.isnan(row.values["rewards/f/mean"])


@pytest.mark.parametrize("text", ["np.float64(0.25)", "np.float32(0.25)", "tensor(0.25, device='cuda:0')", "tensor(0.25)"])
def test_numbers_in_their_libraries_clothes(text: str) -> None:
    assert one(f"{{'loss': {text}, 'epoch': 1.0}}") == {"loss": 0.25, "epoch": 1.0}


def test_text_lists_and_flags_among_the_numbers_are_left_out() -> None:
    assert one("{'run': 'a, b', 'ids': [1, 2], 'best': True, 'loss': 1.5}") == {"loss": 1.5}


def test_several_dicts_on_one_line() -> None:
    assert [row.values["loss"] for row in read("{'loss': 1.0}{'loss': 2.0} {'loss': 3.0}")] == [1.0, 2.0, 3.0]


def test_a_dict_after_other_text() -> None:
    assert one("100/2115 [03:12<1:06:21,  1.98s/it]{'loss': 0.7}") == {"loss": 0.7}


def test_a_dict_over_several_lines() -> None:
    assert one("{'loss': 0.5,", " 'grad_norm': 1.5,", " 'epoch': 2.0}") == {"loss": 0.5, "grad_norm": 1.5, "epoch": 2.0}


def test_a_dict_that_begins_with_a_brace_alone() -> None:
    assert one("{", '  "loss": 0.5,', '  "epoch": 2.0', "}") == {"loss": 0.5, "epoch": 2.0}


def test_a_dict_wrapped_inside_a_word() -> None:
    assert one("{'loss': 0.5, 'learn", "ing_rate': 0.1, 'epoch': 2.0}")["learning_rate"] == 0.1


def test_a_dict_that_is_cut_off_gives_what_was_written() -> None:
    first, second = read("{'loss': 0.5, 'epoch': 1.0, 'gr", "{'loss': 0.25, 'epoch': 2.0}")
    assert first.values == {"loss": 0.5, "epoch": 1.0}
    assert second.values == {"loss": 0.25, "epoch": 2.0}


def test_the_summary_is_a_row() -> None:
    assert one("{'train_runtime': 860.9, 'train_samples_per_second': 1.8, 'epoch': 0.05}")["train_runtime"] == 860.9


@pytest.mark.parametrize(
    "segment",
    [
        "ray init kwargs: {'num_cpus': 8, 'runtime_env': {'env_vars': {'LOSS': '1'}}}",
        "meta info: {'eos_token_id': 151645, 'do_sample': False, 'global_steps': 60}",
        "{'kl_coef': 0.1, 'entropy_coeff': 0.0, 'loss_scale': 2.0}",
        "'policy_loss': {'ppo_kl_coef': 0.1, 'loss': 1.0}",
        "{'loss': {'name': 'mse', 'weight': 1}}",
        "Initial validation metrics: {'val/score/mean': 0.5}",
        "{'task': {'name': 'Causal Language Modeling'}}",
        "def f(): return {'loss': loss, 'epoch': epoch}",
        "{'max_grad_norm': 1.0, 'learning_rate': 0.1}",
    ],
)
def test_settings_and_code_are_no_rows(segment: str) -> None:
    assert read(segment) == []


def test_dicts_that_name_their_step_need_no_bar(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("\r 5%|▍ | 5/20 [00:01<00:02, 1it/s]\n{'loss': 1.0, 'step': 7}\n")
    (row,) = Console().rows(Source(path))
    assert (row.step, row.values["step"]) == (None, 7.0)


def test_a_dict_first_seen_after_a_megabyte_of_warnings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("UserWarning: loss=1 step=2 deprecated\n" * 30_000 + "{'loss': 1.0, 'epoch': 1.0}\n")
    source = Source(path)
    rows = list(Console().rows(source))
    assert source.format == "hf_console_dict"
    assert rows[-1].values == {"loss": 1.0, "epoch": 1.0}
