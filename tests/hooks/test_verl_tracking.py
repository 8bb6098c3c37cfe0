"""`gradwatch` among the loggers of verl's `Tracking`, whatever verl there is; verl's own is tested in `verl_real`."""

from __future__ import annotations

import gc
import logging
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from cases.site import Site

from gradwatch.errors import SettingsError
from gradwatch.metrics import Axes, resolve
from gradwatch_hooks.verl import install
from gradwatch_hooks.verl.tracking import MODULE

Put = Callable[..., Any]


def tracking_of(version: str) -> type:
    """`verl.utils.tracking.Tracking` as verl 0.9.1 and 0.3 have it: only the first has `finish`."""

    class Tracking:
        supported_backend = ["console", "file"]  # noqa: RUF012 - as it is there

        def __init__(self, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None) -> None:
            self.codes: list[int] = []
            backends = [default_backend] if isinstance(default_backend, str) else default_backend
            for backend in backends:
                assert backend in self.supported_backend, f"{backend} is not supported"
            self.logger: dict[str, Any] = {}

        def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
            for name, logger in self.logger.items():
                if backend is None or name in backend:
                    logger.log(data=data, step=step)

        def __del__(self) -> None:
            if hasattr(self, "finish"):
                self.finish()

    if version == "0.9.1":

        def finish(self: Any, exit_code: int = 0) -> None:
            self.codes.append(exit_code)

        Tracking.finish = finish  # type: ignore[attr-defined]
    return Tracking


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a module with these contents in the place of verl's."""

    def place(**contents: Any) -> None:
        module = ModuleType(MODULE)
        vars(module).update(contents)
        for name in ("verl", "verl.utils"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, MODULE, module)

    return place


@pytest.fixture(params=["0.9.1", "0.3"])
def tracking(request: pytest.FixtureRequest, put: Put) -> Any:
    known = tracking_of(request.param)
    put(Tracking=known)
    assert install()
    return known


@pytest.fixture
def run(site: Site, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The id of the run that the environment names."""
    name = request.node.name.replace("[", "-").rstrip("]")
    monkeypatch.setenv("GRADWATCH_URL", site.url)
    monkeypatch.setenv("GRADWATCH_RUN_ID", name)
    return name


def test_what_is_tracked_arrives_and_the_end_ends_the_run(site: Site, run: str, tracking: Any) -> None:
    one = tracking("math", "dr-mas", default_backend=["console", "gradwatch"], config={"n": 8})
    one.log({"actor/grad_norm": 1.5}, step=1)
    one.log({"actor/grad_norm": math.nan, "actor/Qwen2.5-7B_Search Agent/grad_norm": math.inf}, 2)
    del one
    gc.collect()
    assert list(site.curve(run, "actor/grad_norm")) == [1, 2]
    assert math.isnan(site.curve(run, "actor/grad_norm")[2])
    assert site.curve(run, "actor/Qwen2.5-7B_Search Agent/grad_norm") == {2: math.inf}
    assert [one.status for one in site.store.attempts(run)] == ["finished"]
    info = site.store.info(run)
    assert info is not None
    assert (info.name, info.project, info.config) == ("dr-mas", "math", {"n": 8})


def test_a_training_that_ends_badly_fails_its_run(site: Site, run: str, put: Put) -> None:
    known: Any = tracking_of("0.9.1")
    put(Tracking=known)
    install()
    one = known("math", "dr-mas", "gradwatch")
    one.log({"actor/grad_norm": 1.0}, 1)
    one.finish(exit_code=1)
    one.finish()
    assert one.codes == [1, 0]
    assert [one.status for one in site.store.attempts(run)] == ["failed"]


def test_installing_twice_changes_nothing(tracking: Any) -> None:
    init = tracking.__init__
    assert install()
    assert tracking.__init__ is init
    assert tracking.supported_backend == ["console", "file", "gradwatch"]


def test_without_being_asked_for_nothing_is_opened(run: str, tracking: Any) -> None:
    one = tracking("math", "dr-mas")
    one.log({"loss": 1.0}, 1)
    assert one.logger == {}
    with pytest.raises(AssertionError, match="nothing is not supported"):
        tracking("math", "dr-mas", "nothing")


def test_a_wrong_setting_stops_the_training_before_its_first_step(tracking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_MODE", "nowhere")
    with pytest.raises(SettingsError, match="nowhere"):
        tracking("math", "dr-mas", "gradwatch")


class Unlike:
    """A `Tracking` of some other verl."""


@pytest.mark.parametrize("contents", [{}, {"Tracking": Unlike}, {"Tracking": None}])
def test_another_verl_is_left_alone_and_told_of(put: Put, contents: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    put(**contents)
    with caplog.at_level(logging.WARNING, "gradwatch"):
        assert not install()
    assert "gradwatch follow" in caplog.text
    assert not hasattr(Unlike, "supported_backend")


def test_samples_of_a_validation_are_kept(site: Site, run: str, put: Put) -> None:
    class ValidationGenerationsLogger:
        def log(self, loggers: list[str], samples: list[tuple[str, str, float]], step: int) -> None: ...

    known: Any = tracking_of("0.9.1")
    put(Tracking=known, ValidationGenerationsLogger=ValidationGenerationsLogger)
    install()
    one = known("math", "dr-mas", "gradwatch")
    ValidationGenerationsLogger().log(["gradwatch"], [("1+1?", "2", 1.0)], 4)
    ValidationGenerationsLogger().log(["console"], [("1+1?", "3", 0.0)], 4)
    one.finish()
    kept = site.store.samples(run)
    assert [(one.step, one.prompt, one.output, one.rewards) for one in kept] == [(4, "1+1?", "2", {"score": 1.0})]


@pytest.mark.parametrize(
    ("key", "axes"),
    [
        (
            "actor/Qwen2.5-7B_Search Agent/grad_norm",
            Axes("grad_norm", role="Search Agent", policy="Qwen2.5-7B_Search Agent"),
        ),
        (
            "actor/Qwen2.5-3B_Answer Agent/ppo_kl",
            Axes("approx_kl", role="Answer Agent", policy="Qwen2.5-3B_Answer Agent"),
        ),
        (
            "adv_diag/Search Agent/inflation_factor_mean",
            Axes("inflation_ratio", stat="mean", role="Search Agent", scope="adv_diag"),
        ),
        ("adv_diag/Solver Agent/var_ratio_max", Axes("var_ratio", stat="max", role="Solver Agent", scope="adv_diag")),
        ("adv_diag/Solver Agent/mean_gap_mean", Axes("mean_gap", stat="mean", role="Solver Agent", scope="adv_diag")),
    ],
)
def test_keys_of_dr_mas_name_the_agent_behind_the_group_of_weights(key: str, axes: Axes) -> None:
    assert resolve(key) == axes
