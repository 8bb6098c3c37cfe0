"""What each of two gloo processes finds, and what they find together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as mp
from quantities.locator_ranks import RANKS, work


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("locator")
    mp.spawn(work, (str(folder),), nprocs=RANKS)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize(("kind", "part"), [("forward", "body.0"), ("backward", "body.2")])
def test_of_two_ranks_the_one_that_began_it_is_named(ranks: list[dict[str, Any]], kind: str, part: str) -> None:
    well, sick = (found[kind]["own"] for found in ranks)
    assert (well["forward"], well["backward"]) == (None, None)
    assert sick[kind] == part
    assert sick["rank"] == 1


@pytest.mark.parametrize(("kind", "part"), [("forward", "body.0"), ("backward", "body.2")])
def test_together_all_ranks_know_it(ranks: list[dict[str, Any]], kind: str, part: str) -> None:
    for found in ranks:
        assert found[kind]["all"]["rank"] == 1
        assert found[kind]["all"][kind] == part


@pytest.mark.parametrize("way", ["fsdp2", "tensor_parallel"])
def test_of_sharded_weights_every_rank_knows_the_update_ratio_of_the_whole(ranks: list[dict[str, Any]], way: str) -> None:
    for found in ranks:
        assert found[way]["measured"] == pytest.approx(found[way]["truth"], rel=1e-4)
