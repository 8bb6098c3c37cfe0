"""One public training run as trainer_state.json, console log and JSONL: the same steps and values, whichever is read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gradwatch.cli.ingest import ingested
from gradwatch.schema import Selection

FILES = Path(__file__).resolve().parents[1].parent / "shared" / "corpus" / "files"
NAMES = ("trainer-state-17.json", "console-dict-07.log", "jsonl-13.jsonl")

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the corpus of real logs does not lie beside the checkout")


def curves(name: str) -> dict[str, dict[int, float]]:
    with ingested(FILES / name) as done:
        read = done.store.curves(done.runs[0][0].id, Selection(metrics=("loss", "learning_rate")))
    keys = {"loss": "loss", "learning_rate": "learning_rate", "lr": "learning_rate"}
    return {
        keys[one.series.source_key]: dict(zip(one.steps, one.values, strict=True)) for one in read if one.series.source_key in keys
    }


@pytest.mark.parametrize("other", NAMES[1:])
def test_loss_and_learning_rate_are_equal_at_equal_steps(other: str) -> None:
    state, read = curves(NAMES[0]), curves(other)
    assert sorted(state["loss"]) == list(range(5, 241, 5))
    for metric in ("loss", "learning_rate"):
        assert sorted(read[metric]) == sorted(state[metric])
        assert all(math.isclose(read[metric][step], value, rel_tol=0, abs_tol=0) for step, value in state[metric].items())
