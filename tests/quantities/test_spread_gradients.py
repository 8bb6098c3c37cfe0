"""The norm of a gradient that no process holds whole, on two gloo processes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as mp
from quantities.ranks import RANKS, work


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(folder),), nprocs=RANKS)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("way", ["ddp", "fsdp2", "hybrid", "fsdp1", "fsdp1_copies", "tensor_parallel"])
def test_every_rank_knows_the_norm_of_the_whole_gradient(ranks: list[dict[str, Any]], way: str) -> None:
    for found in ranks:
        assert found[way] == pytest.approx(found["truth"], rel=1e-5)


def test_flat_parameters_sum_to_the_whole_norm(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["fsdp1_flat"][""] == pytest.approx(found["truth"][""], rel=1e-5)


def test_low_precision_shards_agree_within_their_precision(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["fsdp2_bf16"] == pytest.approx(found["truth"], rel=0.02)


@pytest.mark.parametrize("way", ["partial_gradient", "gradient_spread_alone"])
def test_a_gradient_that_is_spread_otherwise_than_its_weight_is_brought_together(ranks: list[dict[str, Any]], way: str) -> None:
    assert [found[way][""] for found in ranks] == [5.0, 5.0]


def test_an_infinity_on_one_rank_is_seen_on_both(ranks: list[dict[str, Any]]) -> None:
    assert [found["one_gradient_here"] for found in ranks] == [{"": math.inf, "weight": math.inf}] * 2


@pytest.mark.parametrize("way", ["not_yet", "accumulating"])
def test_without_a_reduced_gradient_the_norm_is_unavailable_and_not_0(ranks: list[dict[str, Any]], way: str) -> None:
    for found in ranks:
        assert "backward has not run" in found[way]


def test_parts_of_a_flattened_model_are_refused_without_the_module_that_holds_them(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert "give the outermost wrapped model" in found["without_its_wrapper"]
