"""Role gradients of a model that two gloo processes train: sums of both are the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as mp
from quantities.engines.spread_engines import RANKS, work


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(folder),), nprocs=RANKS)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]


WAYS = ["neutral_ddp", "neutral_fsdp2", "exact_ddp", "exact_fsdp2", "micro_ddp", "micro_ddp_other", "micro_fsdp2", "within_ddp"]


@pytest.mark.parametrize("way", WAYS)
def test_every_rank_knows_the_roles_gradients_of_the_whole(ranks: list[dict[str, Any]], way: str) -> None:
    for found in ranks:
        assert "reason" not in found[way], found[way]
        assert found[way]["norm"] <= found[way]["norm_error"] <= 0.1
        assert found[way]["cosine"] <= found[way]["cosine_error"]
    assert ranks[0][way]["covered"] == ranks[1][way]["covered"] == 27


@pytest.mark.parametrize("way", ["neutral_ddp", "neutral_fsdp2", "exact_ddp"])
def test_influence_sums_to_1_over_the_sequences_of_all_ranks(ranks: list[dict[str, Any]], way: str) -> None:
    assert sum(found[way]["influence"] for found in ranks) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("micro_fsdp2_other", "different roles in one backward"),
        ("micro_fsdp2_unsynchronized", "reduced the gradients of micro-batches of several roles together"),
        ("within_fsdp2", "sharded"),
    ],
)
def test_what_cannot_be_told_apart_is_unavailable_on_every_rank(ranks: list[dict[str, Any]], way: str, reason: str) -> None:
    for found in ranks:
        assert reason in found[way]["reason"]
