"""The hook for Lightning: the contract, and what is Lightning's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import HookContract, curve, status
from contracts.hook_job import Job, batch, loss_of
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor
from torch.utils.data import DataLoader

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch.schema import FAILED, INTERRUPTED, Selection
from gradwatch_hooks.lightning import GradwatchCallback, GradwatchLogger

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 1,
}


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lightning advises to use more workers, and leaves its folders where it is started."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*num_workers.*")
        yield


class Module(LightningModule):
    """A `Net` that is trained as a job says."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.net, self.job = job.net(), job

    def training_step(self, given: Mapping[str, Tensor], index: int) -> Tensor:
        return self.job.weigh(loss_of(self.net(given["x"])))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), self.job.learning_rate)


def batches(job: Job) -> DataLoader[Any]:
    rows = [
        {"x": job.batch(micro), "role_ids": torch.full((4,), micro % 2)} if job.has_roles else {"x": job.batch(micro)}
        for micro in job.micro_batches
    ]
    return DataLoader(rows, batch_size=None)  # type: ignore[arg-type]


class Lightning:
    """Resumes from a checkpoint that the earlier part of the same training wrote."""

    def train(self, job: Job) -> Mapping[str, Tensor]:
        roles = {"roles": ["solver", "verifier"], "role_column": "role_ids"} if job.has_roles else {}
        callback = GradwatchCallback(job.run, max_overhead=None, **roles) if job.is_watched else None
        module = Module(job)
        trainer = Trainer(
            max_steps=job.first_step + job.steps,
            accumulate_grad_batches=job.accumulation,
            gradient_clip_val=job.clip,
            callbacks=[callback] if callback is not None else [],
            strategy="ddp" if job.ranks > 1 else "auto",
            devices=job.ranks,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=False,
            **QUIET,
        )
        job.keep(net=module.net, module=module, trainer=trainer)
        saved = Path("saved.ckpt") if job.first_step else None
        trainer.fit(module, batches(job), ckpt_path=saved, weights_only=False if saved else None)
        job.keep(optimizer=trainer.optimizers[0])
        if job.ranks == 1:
            trainer.save_checkpoint("saved.ckpt")
        return module.net.state_dict()


class TestLightning(HookContract):
    adapter: ClassVar = Lightning()
    interrupt: ClassVar = SystemExit


class Plain(LightningModule):
    """A small module that logs what a user would."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Job(None).net()

    def training_step(self, x: Tensor, index: int) -> Tensor:
        loss = loss_of(self.net(x))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, x: Tensor, index: int) -> None:
        self.log("accuracy", x.mean() * 0 + 0.25 * (index + 1))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Twins(Plain):
    """Two optimizers of two halves, stepped by hand; the second one only at every other batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = Job(None).net(), Job(None).net()
        self.callback: GradwatchCallback | None = None

    def training_step(self, x: Tensor, index: int) -> None:
        for net, optimizer in list(zip((self.first, self.second), self.optimizers(), strict=True))[: 1 + (index + 1) % 2]:
            optimizer.zero_grad()
            self.manual_backward(loss_of(net(x)))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(net.parameters(), 0.1) for net in (self.first, self.second)]


class Closures(Plain):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), max_iter=4)


def data(count: int = 4) -> DataLoader[Any]:
    return DataLoader([batch(index) for index in range(count)], batch_size=None)  # type: ignore[arg-type]


def fit(module: LightningModule, *callbacks: Any, validate: bool = False, resume: Path | None = None, **options: Any) -> Trainer:
    options = QUIET | {"max_epochs": 1, "logger": False, "enable_checkpointing": False} | options
    trainer = Trainer(callbacks=list(callbacks), **options)
    trainer.fit(module, data(), data(2) if validate else None, ckpt_path=resume, weights_only=False if resume else None)
    return trainer


@pytest.fixture
def run(site: Site) -> Iterator[gradwatch.Run]:
    with gradwatch.init(url=site.url, quiet=True) as opened:
        yield opened


def values(site: Site, run: gradwatch.Run, metric: str, stream: str = "train") -> dict[int, float]:
    assert run.flush(30)
    found = [one for one in site.store.curves(run.id, Selection(metrics=(metric,))) if one.series.stream == stream]
    return {step: value for one in found for step, value in zip(one.steps, one.values, strict=True)}


def norm(site: Site, run: gradwatch.Run, policy: str = "") -> dict[int, float]:
    assert run.flush(30)
    return curve(site, run.id, policy=policy)


def test_each_optimizer_is_a_policy_with_its_own_norms_and_steps(site: Site, run: gradwatch.Run) -> None:
    fit(Twins(), GradwatchCallback(run, policies=["actor", "critic"]))
    actor, critic = norm(site, run, "actor"), norm(site, run, "critic")
    assert (list(actor), list(critic)) == ([0, 1, 2, 3], [0, 1])
    assert actor[0] == critic[0]
    assert norm(site, run) == {}


def test_each_policy_goes_on_counting_after_a_resume(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    callback = GradwatchCallback(run, policies=["actor", "critic"])
    saving = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=6, save_on_train_epoch_end=False)
    fit(Twins(), callback, saving, enable_checkpointing=True)
    fit(Twins(), callback, resume=Path(saving.best_model_path), max_epochs=2)
    assert list(norm(site, run, "actor")) == list(range(8))
    assert list(norm(site, run, "critic")) == list(range(4))


def test_policies_have_to_be_as_many_as_optimizers(run: gradwatch.Run) -> None:
    module = Twins()
    with pytest.raises(SettingsError, match="the module has 2 optimizers"):
        fit(module, GradwatchCallback(run, policies=["actor"]))
    fit(module, GradwatchCallback(run))


def test_an_optimizer_that_evaluates_its_closure_several_times_makes_one_record_a_step(site: Site, run: gradwatch.Run) -> None:
    fit(Closures(), GradwatchCallback(run))
    assert list(norm(site, run)) == [0, 1, 2, 3]


def test_under_amp_norms_are_unscaled_and_a_skipped_step_is_flagged(site: Site, run: gradwatch.Run) -> None:
    class Overflowing(Plain):
        def training_step(self, x: Tensor, index: int) -> Tensor:
            return super().training_step(x, index) * (float("inf") if index == 1 else 1.0)

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = Overflowing()
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    fit(plain, GradwatchCallback(run), plugins=[precision], gradient_clip_val=1e-3)
    assert values(site, run, "step_skipped") == {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0}
    assert values(site, run, "loss_scale") == {0: 1024.0, 1: 1024.0, 2: 512.0, 3: 512.0}
    truth = Job(None).net()
    loss_of(truth(batch(0))).backward()
    expected = torch.stack([one.grad.norm() for one in truth.parameters() if one.grad is not None]).norm()
    assert norm(site, run)[0] == pytest.approx(float(expected), rel=0.02)
    assert not torch.tensor(norm(site, run)[1]).isfinite()


def test_roles_of_a_manual_loop_are_said_around_forward_and_backward(site: Site, run: gradwatch.Run) -> None:
    callback = GradwatchCallback(run, roles=["solver", "verifier"], max_overhead=None)

    class Speaking(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, x: Tensor, index: int) -> None:
            for role in ("solver", "verifier"):
                with callback.role(role):
                    self.manual_backward(loss_of(self.net(x)))
            self.optimizers().step()
            self.optimizers().zero_grad()

    fit(Speaking(), callback)
    assert run.flush(30)
    solver, verifier = (curve(site, run.id, role=role) for role in ("solver", "verifier"))
    assert list(solver) == [0, 1, 2, 3]
    assert solver == pytest.approx(verifier, rel=0.02)


def test_a_batch_without_its_roles_is_told_and_trained(run: gradwatch.Run, live: Callable[[], None]) -> None:
    live()
    callback = GradwatchCallback(run, roles=["solver"], role_column="role_ids")
    fit(Plain(), callback)
    assert callback.guard.failures == 4


def test_what_validation_found_is_of_the_eval_stream_at_the_step_of_its_weights(site: Site, run: gradwatch.Run) -> None:
    fit(Plain(), GradwatchCallback(run), validate=True, val_check_interval=2, num_sanity_val_steps=2)
    assert values(site, run, "accuracy", "eval") == {1: 0.375, 3: 0.375}
    assert values(site, run, "accuracy") == {}
    assert list(values(site, run, "loss")) == [0, 1, 2, 3]


def test_the_logger_logs_what_the_module_logs_at_the_steps_of_the_gradients(site: Site) -> None:
    logger = GradwatchLogger(url=site.url, quiet=True, name="maze")
    logger.log_hyperparams({"width": 6})
    fit(Plain(), GradwatchCallback(), validate=True, logger=logger, val_check_interval=2, num_sanity_val_steps=2)
    run = logger.experiment
    assert (logger.name, logger.version) == ("maze", run.id)
    assert values(site, run, "accuracy", "eval") == {1: 0.375, 3: 0.375}
    assert list(norm(site, run)) == list(values(site, run, "loss")) == [0, 1, 2, 3]
    assert site.collector.state(run.id).info.config == {"width": 6}
    logger.log_hyperparams({"depth": 2})
    run.finish()
    assert [one.facts for one in site.store.events(run.id) if one.kind == "config"] == [{"depth": 2}]


def test_checkpoints_are_logged_with_what_their_weights_came_to(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path / "saved", monitor="accuracy", save_top_k=-1)
    trainer = fit(Plain(), GradwatchCallback(run), saving, validate=True, val_check_interval=2, enable_checkpointing=True)
    assert "save_checkpoint" not in vars(trainer)
    assert run.flush(30)
    checkpoints = site.store.checkpoints(run.id)
    assert [(one.step, one.metrics) for one in checkpoints] == [(1, {"accuracy": 0.375}), (3, {"accuracy": 0.375})]
    assert all(Path(one.uri).is_file() for one in checkpoints)


def test_an_error_that_the_program_survives_still_ends_the_run_as_failed(site: Site) -> None:
    run = gradwatch.init(url=site.url, quiet=True)
    with pytest.raises(ZeroDivisionError):
        fit(Failing(ZeroDivisionError("no")), GradwatchCallback(run))
    run.finish()
    assert status(site, run.id) == FAILED
    assert [one.message for one in site.store.events(run.id) if one.kind == FAILED] == ["ZeroDivisionError: no"]


@pytest.mark.parametrize("has_callback", [True, False])
def test_an_interrupt_ends_the_run_as_interrupted_before_lightning_leaves_the_program(site: Site, has_callback: bool) -> None:
    logger = GradwatchLogger(url=site.url, quiet=True)
    with pytest.raises(SystemExit):
        fit(Failing(KeyboardInterrupt()), *[GradwatchCallback()] * has_callback, logger=logger)
    logger.experiment.finish()
    assert status(site, logger.version) == INTERRUPTED


class Failing(Plain):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def training_step(self, x: Tensor, index: int) -> Tensor:
        if index == 2:
            raise self.error
        return super().training_step(x, index)


def test_outside_of_a_training_nothing_is_watched(run: gradwatch.Run) -> None:
    callback = GradwatchCallback(run)
    with pytest.raises(SettingsError, match=r"before Trainer\.fit"):
        _ = callback.watcher
    trainer = fit(Plain(), callback, validate=True)
    assert callback.watchers == []
    trainer.validate(Plain(), data(2), verbose=False)
