"""verl's own `Tracking`, with `gradwatch` among its loggers, into a real collector over HTTP."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.site import Site
from verl.utils.tracking import Tracking, ValidationGenerationsLogger

CONFIG = {"trainer": {"project_name": "math", "total_epochs": 3}, "data": {"train_batch_size": 8}}


@pytest.fixture
def tracked(site: Site, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The id of the run that the environment names."""
    monkeypatch.setenv("GRADWATCH_URL", site.url)
    run = request.node.name.replace("[", "-").rstrip("]")
    monkeypatch.setenv("GRADWATCH_RUN_ID", run)
    return run


def test_verl_has_loaded_the_plugin_by_itself() -> None:
    code = "import verl, sys; print('gradwatch_hooks.verl' in sys.modules, 'torch._dynamo' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True).split()[0] == "True"
    assert Tracking.supported_backend.count("gradwatch") == 1


@pytest.mark.parametrize("backend", ["gradwatch", ["console", "gradwatch"]])
def test_what_verl_tracks_arrives_with_its_steps_and_nothing_is_bent(site: Site, tracked: str, backend: str | list[str]) -> None:
    tracking = Tracking("math", "dr-mas", default_backend=backend, config=CONFIG)
    tracking.log(data={"actor/grad_norm": 1.5, "actor/Qwen2.5-7B_Search Agent/grad_norm": np.float64(81.0)}, step=1)
    tracking.log(
        data={"actor/grad_norm": math.nan, "critic/score/mean": torch.tensor(0.25), "val-core/gsm8k/acc/mean@8": math.inf}, step=2
    )
    tracking.finish()
    norms = site.curve(tracked, "actor/grad_norm")
    assert norms[1] == 1.5
    assert math.isnan(norms[2])
    assert site.curve(tracked, "actor/Qwen2.5-7B_Search Agent/grad_norm") == {1: 81.0}
    assert site.curve(tracked, "critic/score/mean") == {2: 0.25}
    assert site.curve(tracked, "val-core/gsm8k/acc/mean@8") == {2: math.inf}
    run = site.store.info(tracked)
    assert run is not None
    assert (run.name, run.project, run.config) == ("dr-mas", "math", CONFIG)
    assert [one.status for one in site.store.attempts(tracked)] == ["finished"]


def test_a_training_that_fails_ends_its_run_as_failed(site: Site, tracked: str) -> None:
    tracking = Tracking("math", "dr-mas", default_backend="gradwatch")
    tracking.log(data={"actor/grad_norm": 1.0}, step=1)
    tracking.finish(exit_code=1)
    tracking.finish(exit_code=0)
    assert [one.status for one in site.store.attempts(tracked)] == ["failed"]


def test_a_tracking_that_is_dropped_ends_its_run(site: Site, tracked: str) -> None:
    tracking = Tracking("math", "dr-mas", default_backend=["gradwatch"])
    tracking.log(data={"actor/grad_norm": 1.0}, step=1)
    del tracking
    assert [one.status for one in site.store.attempts(tracked)] == ["finished"]


def test_other_loggers_are_what_they_were(tracked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "log.jsonl"))
    tracking = Tracking("math", "dr-mas", default_backend=["file"])
    tracking.log(data={"actor/grad_norm": math.nan}, step=3)
    assert list(tracking.logger) == ["file"]
    assert json.loads((tmp_path / "log.jsonl").read_text()) == {"step": 3, "data": {"actor/grad_norm": None}}
    with pytest.raises(AssertionError, match="nothing is not supported"):
        Tracking("math", "dr-mas", default_backend=["nothing"])


def test_samples_of_a_validation_are_kept(site: Site, tracked: str) -> None:
    tracking = Tracking("math", "dr-mas", default_backend="gradwatch")
    ValidationGenerationsLogger().log(["gradwatch"], [("1+1?", "2", 1.0), ("2+2?", "5", 0.0)], 4)
    tracking.finish()
    kept = site.store.samples(tracked)
    assert [(one.step, one.prompt, one.output, one.rewards) for one in kept] == [
        (4, "1+1?", "2", {"score": 1.0}),
        (4, "2+2?", "5", {"score": 0.0}),
    ]
