"""What the Trainer hook logs of a real language model's training, and what it refuses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import curve, grad_norms
from datasets import Dataset
from hooks.tiny import tiny_model  # noqa: TID251 - the folder of these tests
from torch import Tensor
from transformers import Trainer, TrainingArguments

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch_hooks.transformers import GradwatchCallback, watch_trainer
from gradwatch_hooks.watching.own_methods import OwnMethods

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")
ROLES = ["solver", "verifier"]
LENGTH = 6


@pytest.fixture
def run(site: Site, request: pytest.FixtureRequest) -> gradwatch.Run:
    return gradwatch.init(id=request.node.name[:90], url=site.url, quiet=True)


def rows(count: int = 8) -> Dataset:
    """Sequences of random tokens, the roles in turn; the first tokens of a row are no target."""
    tokens = torch.randint(2, 40, (count, LENGTH), generator=torch.Generator().manual_seed(1)).tolist()
    labels = [[-100] * (1 + at % 3) + row[1 + at % 3 :] for at, row in enumerate(tokens)]
    return Dataset.from_dict({"input_ids": tokens, "labels": labels, "role_ids": [at % 2 for at in range(count)]})


def trainer(folder: Path, **asked: Any) -> Trainer:
    arguments = {"max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "no", "learning_rate": 1e-3}
    fixed = {"output_dir": str(folder), "use_cpu": True, "report_to": [], "disable_tqdm": True}
    asked = fixed | arguments | asked
    held_out = rows(4) if "eval_strategy" in asked else None
    return Trainer(tiny_model(), TrainingArguments(**asked), train_dataset=rows(), eval_dataset=held_out)


def keys(site: Site, run: gradwatch.Run) -> set[str]:
    return {one.series.source_key for one in site.store.curves(run.id)}


def of_the_loss(model: Any, batches: list[dict[str, Tensor]], role: int | None) -> float:
    """The norm of the gradient of one role's part of a step's loss, by a backward of its own."""
    twin = copy.deepcopy(model).double()
    targets = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    for batch in batches:
        mine = slice(None) if role is None else batch["role_ids"] == role
        logits = twin(input_ids=batch["input_ids"][mine]).logits[:, :-1]
        nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][mine][:, 1:].flatten(), reduction="sum")
        (nats / targets).backward()
    return float(torch.stack([one.grad.norm() for one in twin.parameters()]).norm())


def test_roles_of_mixed_batches_have_the_norms_of_separate_backwards(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=1, gradient_accumulation_steps=2)
    before = copy.deepcopy(one.model)
    with run, watch_trainer(one, run=run, roles=ROLES, engine="split"):
        one.train()
    one.model = before
    batches = list(one.get_train_dataloader())
    assert all(set(batch["role_ids"].tolist()) == {0, 1} for batch in batches)
    for index, role in enumerate(ROLES):
        assert curve(site, run.id, role=role)[1] == pytest.approx(of_the_loss(before, batches, index), rel=1e-3)
    assert curve(site, run.id)[1] == pytest.approx(of_the_loss(before, batches, None), rel=1e-5)


def test_what_the_trainer_logs_is_logged_at_its_own_steps(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=2, eval_on_start=True)
    with run, watch_trainer(one, run=run, roles=ROLES):
        one.train()
    for key in ("loss", "learning_rate", "eval_loss"):
        written = {entry["step"]: entry[key] for entry in one.state.log_history if key in entry}
        assert site.curve(run.id, key) == written
    assert list(site.curve(run.id, "loss")) == list(curve(site, run.id)) == [1, 2, 3]
    assert list(site.curve(run.id, "eval_loss")) == [0, 2, 3]


def test_the_summary_at_the_end_is_an_event_and_no_loss_of_a_step(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path)
    with run, watch_trainer(one, run=run):
        one.train()
    (told,) = [event for event in site.store.events(run.id) if event.kind == "summary"]
    assert (told.step, told.facts["train_loss"]) == (2, one.state.log_history[-1]["train_loss"])
    assert not {key for key in keys(site, run) if key.startswith("train_")}


def test_the_trainers_grad_norm_does_not_stand_in_for_that_of_each_step(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=4, logging_steps=2, max_grad_norm=1e-3)
    with run, watch_trainer(one, run=run):
        one.train()
    (whole,) = [found for found in grad_norms(site, run.id) if not found.series.scope]
    assert whole.steps == [1, 2, 3, 4]
    logged = {entry["step"]: entry["grad_norm"] for entry in one.state.log_history if "grad_norm" in entry}
    assert {step: whole.values[step - 1] for step in logged} == pytest.approx(logged, rel=1e-5)


class Poisoned(Trainer):
    """The loss of the second step is NaN."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        return loss * (math.nan if self.state.global_step == 1 else 1.0)


def poisoned(folder: Path, **asked: Any) -> Trainer:
    plain = trainer(folder, max_steps=3, **asked)
    return Poisoned(plain.model, plain.args, train_dataset=plain.train_dataset)


def test_a_nan_that_the_trainer_filters_out_of_its_loss_is_logged_nonetheless(
    site: Site, run: gradwatch.Run, tmp_path: Path
) -> None:
    one = poisoned(tmp_path)
    with run, watch_trainer(one, run=run):
        one.train()
    assert all(math.isfinite(entry["loss"]) for entry in one.state.log_history if "loss" in entry)
    assert [math.isnan(loss) for loss in site.curve(run.id, "loss").values()] == [False, True, True]


@pytest.mark.parametrize("filters", [True, False])
def test_the_callback_alone_says_once_that_losses_are_filtered(
    filters: bool, site: Site, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    one = poisoned(tmp_path, logging_nan_inf_filter=filters)
    with gradwatch.init(id=f"filters-{filters}", url=site.url, quiet=True) as run:
        one.add_callback(GradwatchCallback())
        one.train()
    told = [event for event in site.store.events(run.id) if event.kind == "loss_filtered"]
    assert [event.step for event in told] == ([2] if filters else [])
    assert math.isnan(site.curve(run.id, "loss")[3]) is not filters


def test_a_checkpoint_has_what_its_own_weights_came_to(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 1, "save_only_model": True}
    one = trainer(tmp_path, eval_strategy="steps", eval_steps=2, **saving)
    with run, watch_trainer(one, run=run, roles=ROLES):
        one.train()
    saved = {found.step: found for found in site.store.checkpoints(run.id)}
    assert [(Path(found.uri).is_dir(), Path(found.uri).name) for found in saved.values()] == [
        (True, "checkpoint-1"),
        (True, "checkpoint-2"),
    ]
    assert "eval_loss" not in saved[1].metrics
    assert saved[2].metrics["eval_loss"] == site.curve(run.id, "eval_loss")[2]


def test_evaluations_after_the_training_are_logged_too(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=1)
    with run, watch_trainer(one, run=run, roles=ROLES):
        one.train()
        one.evaluate(rows(4))
    assert list(site.curve(run.id, "eval_loss")) == [1]


def test_a_second_training_is_watched_as_the_first(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=1)
    with run, watch_trainer(one, run=run):
        one.train()
        one.args.max_steps = 3
        one.train()
    assert list(curve(site, run.id)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"roles": ROLES, "role_column": "speaker"}, "no column 'speaker'.*input_ids, labels, role_ids.*role_column="),
        ({"roles": ["solver"]}, "ids from 0 to 1: 1 roles make ids from 0 to 0"),
        ({"role": ROLES}, "no option 'role'"),
    ],
)
def test_a_wrong_call_is_refused_and_leaves_the_trainer_as_it_was(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    one = trainer(tmp_path)
    before = dict(vars(one))
    with pytest.raises(SettingsError, match=said):
        watch_trainer(one, **asked)
    assert vars(one) == before
    assert not [found for found in one.callback_handler.callbacks if isinstance(found, GradwatchCallback)]


def test_a_trainer_is_watched_once(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    with watch_trainer(one), pytest.raises(SettingsError, match="already"):
        watch_trainer(one)
    watch_trainer(one).unwatch()


def test_without_a_run_the_training_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwatch.client.lifecycle._STATE.newest", None)
    one = trainer(tmp_path)
    with watch_trainer(one), pytest.raises(SettingsError, match=r"gradwatch\.init"):
        one.train()
    assert one.state.global_step == 0


def test_a_collator_that_drops_the_ids_is_told_once_and_trains_on(
    run: gradwatch.Run, tmp_path: Path, live: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    live()
    one = trainer(tmp_path)
    collate = one.data_collator
    one.data_collator = lambda features: {key: value for key, value in collate(features).items() if key != "role_ids"}
    with run, watch_trainer(one, run=run, roles=ROLES):
        one.train()
    assert one.state.global_step == 2
    assert len([record for record in caplog.records if "data collator" in record.getMessage()]) == 1


def test_what_somebody_wrapped_after_us_stays_and_goes_on_without_us(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    called: list[str] = []
    methods = OwnMethods(one)
    methods.wrap("evaluate", lambda evaluate, *args: called.append("ours") or evaluate(*args))
    ours = one.evaluate

    def theirs(*args: Any) -> Any:
        called.append("theirs")
        return ours(*args)

    one.evaluate = theirs
    one.evaluate(rows(1).remove_columns("role_ids"))
    methods.restore()
    assert one.evaluate is theirs
    one.evaluate(rows(1).remove_columns("role_ids"))
    assert called == ["theirs", "ours", "theirs"]
