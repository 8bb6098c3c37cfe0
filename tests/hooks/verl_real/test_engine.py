"""Role gradients inside verl's own `TrainingWorker` and FSDP2 engine, on one and two gloo ranks, into a collector over HTTP."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cases.site import Site
from contracts.hook_contract import curve
from hooks.verl_real.training import (  # noqa: TID251 - the folder of these tests
    CLIP,
    LENGTHS,
    ROLES,
    STEPS,
    on_ranks,
    save_model,
    true_gradients,
)

EXACT: dict[str, Any] = {"engine": "split"}
CASES: dict[str, dict[str, Any]] = {
    "neutral": {"options": {}},
    "neutral-padded": {"options": {}, "packed": False},
    "neutral-one-row-a-time": {"options": {}, "micro": 1},
    "split": {"options": EXACT},
    "split-padded": {"options": EXACT, "packed": False},
    "split-to-length": {"options": EXACT, "pad": True},
    "lora": {"options": {}, "lora_rank": 4},
    "nan": {"options": {"steps": "trainer"}, "bad": 0},
    "plain": {"lr": 0.1},
    "watched": {"lr": 0.1, "options": {}},
}
WITHIN = {"neutral": 0.15, "split": 1e-5}


@pytest.fixture(scope="module", params=[1, 2], ids=["one-rank", "two-ranks"])
def world(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def trained(site: Site, model: str, world: int, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw in each case; verl is started once for all."""
    return on_ranks(world, tmp_path_factory.mktemp("ranks"), site.url, model, CASES)


def rows_of_steps(of_ranks: list[dict[str, Any]]) -> list[list[list[int]]]:
    """Step → rank → rows."""
    size = len(LENGTHS) // STEPS
    rows = [[number for micro in one["seen"] for number in micro] for one in of_ranks]
    return [[of_rank[at : at + size] for of_rank in rows] for at in range(0, len(LENGTHS), size)]


@pytest.mark.parametrize("case", [name for name in CASES if name.partition("-")[0] in WITHIN])
def test_role_norms_are_those_of_separate_backwards(
    site: Site, model: str, world: int, trained: list[dict[str, Any]], case: str
) -> None:
    of_ranks, run = [one[case] for one in trained], f"{case}-{world}"
    assert any(sorted(step[0]) != step[0] for step in rows_of_steps(of_ranks))
    truth = true_gradients(model, rows_of_steps(of_ranks))
    whole = curve(site, run)
    assert list(whole) == list(range(STEPS))
    assert list(whole.values()) == pytest.approx(truth[""], rel=1e-5)
    for role in ROLES:
        norms = curve(site, run, role=role)
        assert norms[0] == pytest.approx(truth[role][0], rel=1e-5)
        assert list(norms.values()) == pytest.approx(truth[role], rel=WITHIN[case.partition("-")[0]])


@pytest.mark.parametrize("case", [name for name in CASES if "options" in CASES[name] and name not in ("nan", "lora")])
def test_norms_are_those_that_verl_returns_before_clipping(
    site: Site, world: int, trained: list[dict[str, Any]], case: str
) -> None:
    norms = trained[0][case]["norms"]
    assert min(norms) > CLIP
    assert list(curve(site, f"{case}-{world}").values()) == pytest.approx(norms, rel=1e-5)


def test_roles_of_a_lora_model_add_up_to_its_gradient(site: Site, world: int, trained: list[dict[str, Any]]) -> None:
    run = f"lora-{world}"
    shares = [one for one in site.store.curves(run) if one.series.metric == "grad_share"]
    assert [one.series.role for one in shares] == list(ROLES)
    assert [sum(step) for step in zip(*[one.values for one in shares], strict=True)] == pytest.approx([1.0] * STEPS, rel=1e-4)


def test_a_step_that_verl_leaves_out_is_recorded_as_skipped_at_the_trainers_step(
    site: Site, world: int, trained: list[dict[str, Any]]
) -> None:
    run = f"nan-{world}"
    written = [one.value for _, block in site.store.replay(run) for one in block if one.series.metric == "step_skipped"]
    assert written == [1.0, 0.0]
    assert list(site.curve(run, "step_skipped")) == [17]
    assert math.isnan(trained[0]["nan"]["norms"][0])


def test_weights_are_those_without_the_hook_to_the_last_bit(trained: list[dict[str, Any]]) -> None:
    for of_rank in trained:
        assert of_rank["watched"]["weights"] == of_rank["plain"]["weights"]
        assert of_rank["watched"]["weights"] != of_rank["neutral"]["weights"]
