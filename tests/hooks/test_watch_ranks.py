"""`watch` on two gloo processes: the roles of a gradient that no process computes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as mp
from loops.watch_ranks import ENGINES, RANKS, WRAPS, work

NAMES = [wrap.__name__ for wrap in WRAPS]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (str(folder),), nprocs=RANKS)
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]


def tolerance(wrap: str) -> float:
    """bf16 weights compute another gradient, off by more than the engine is."""
    return 0.03 if "bf16" in wrap else 0.01


@pytest.mark.parametrize("wrap", NAMES)
@pytest.mark.parametrize("engine", ENGINES)
def test_roles_of_both_ranks_are_measured_in_one_backward(ranks: list[dict[str, Any]], wrap: str, engine: str) -> None:
    for found in ranks:
        got, truth = found[f"{wrap} {engine}"], found["mixed truth"]
        assert "why" not in got, got["why"]
        loose = 5 if engine == "auto" else 1
        for role in ("solver", "verifier"):
            assert got[role] == pytest.approx(truth[role], rel=loose * tolerance(wrap))
        assert got["cosine"] == pytest.approx(truth["cosine"], abs=loose * 0.016)
        assert got["counts"] == [6.0, 10.0]


@pytest.mark.parametrize("wrap", NAMES)
@pytest.mark.parametrize("engine", [*ENGINES, "micro"])
def test_the_whole_norm_is_that_before_clipping(ranks: list[dict[str, Any]], wrap: str, engine: str) -> None:
    for found in ranks:
        truth = found["micro truth" if engine == "micro" else "mixed truth"]
        assert found[f"{wrap} {engine}"][""] == pytest.approx(truth[""], rel=tolerance(wrap) if "bf16" in wrap else 1e-5)


@pytest.mark.parametrize("wrap", NAMES)
def test_micro_batches_of_one_role_are_measured_by_their_own_backward(ranks: list[dict[str, Any]], wrap: str) -> None:
    for found in ranks:
        got, truth = found[f"{wrap} micro"], found["micro truth"]
        assert got["engine"] == "micro"
        for role in ("solver", "verifier"):
            assert got[role] == pytest.approx(truth[role], rel=tolerance(wrap))


@pytest.mark.parametrize("wrap", NAMES)
def test_weights_are_bit_equal_to_those_that_nobody_watched(ranks: list[dict[str, Any]], wrap: str) -> None:
    assert all(found[f"{wrap} bit-equal"] for found in ranks)


def test_under_ddp_ranks_may_run_different_roles_at_once(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        for role in ("solver", "verifier"):
            assert found["ddp crossed"][-1][role] == pytest.approx(found["micro truth"][role], rel=0.01)


def test_under_fsdp_ranks_that_run_different_roles_at_once_are_told_so_and_then_measured_as_mixed(
    ranks: list[dict[str, Any]],
) -> None:
    for found in ranks:
        first, second = found["fsdp2 crossed"]
        assert "different" in first["why"]
        assert second["engine"] == "neutral"
        for role in ("solver", "verifier"):
            assert second[role] == pytest.approx(found["micro truth"][role], rel=0.05)


def test_where_one_rank_alone_has_a_mixed_batch_all_go_over_to_what_measures_those(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        first, second = found["one rank mixed"]
        assert "in different ways" in first["why"]
        assert second["engine"] == "neutral"


def test_a_nan_on_one_rank_is_named_with_its_rank_on_both(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["nan"].startswith("on rank 1, 'mix' is the first module whose output is not finite")
