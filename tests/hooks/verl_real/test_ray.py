"""A whole job in Ray, as verl starts one: a trainer with its `Tracking`, and two ranks of workers, all in one run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from cases.site import Site
from contracts.hook_contract import curve
from hooks.verl_real.job import TaskRunner  # noqa: TID251 - the folder of these tests
from hooks.verl_real.training import ROLES, save_model  # noqa: TID251

RUN = "verl-in-ray"
TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster(site: Site, tmp_path: Path) -> Iterator[None]:
    variables = {
        "GRADWATCH_URL": site.url,
        "GRADWATCH_RUN_ID": RUN,
        "GRADWATCH_DIR": str(tmp_path / "spool"),
        "PYTHONPATH": str(TESTS),
        "VERL_USE_EXTERNAL_MODULES": "hooks.verl_real.in_each_process",
        "OMP_NUM_THREADS": "1",
    }
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": variables})
    yield
    ray.shutdown()


def until(condition: Callable[[], bool]) -> None:
    """Workers send in the background."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_trainer_and_its_workers_write_one_run(site: Site, cluster: None, tmp_path: Path) -> None:
    norms: Any = ray.get(TaskRunner.remote().run.remote(save_model(tmp_path / "model"), 3))
    until(lambda: len(curve(site, RUN)) == len(norms))
    assert list(site.curve(RUN, "actor/grad_norm").values()) == norms
    assert list(curve(site, RUN).values()) == pytest.approx(norms, rel=1e-5)
    for role in ROLES:
        assert len(curve(site, RUN, role=role)) == 3
    assert len(site.store.attempts(RUN)) == 1
