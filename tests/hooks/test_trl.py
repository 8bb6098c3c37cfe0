"""Two roles that share one policy in TRL's GRPOTrainer: what is logged of each, and what is refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import curve
from datasets import Dataset
from hooks.tiny import tiny_model, tiny_tokenizer  # noqa: TID251 - the folder of these tests
from peft import LoraConfig
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch.schema import Sample
from gradwatch_hooks.hf.generations import ROLE_IDS
from gradwatch_hooks.hf.logs import to_metrics
from gradwatch_hooks.hf.rollouts import text_of
from gradwatch_hooks.trl import watch_grpo

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    pytest.mark.filterwarnings("ignore:.*checkpointing.*:FutureWarning"),
]
ROLES = ["solver", "verifier"]
# The head's product with the hidden states is TRL's own, outside of any module: only whole micro-batches tell its roles apart.
WITHOUT_HEAD = {"exclude": ["lm_head.*"]}


@pytest.fixture
def run(site: Site, request: pytest.FixtureRequest) -> gradwatch.Run:
    return gradwatch.init(id=request.node.name.translate({91: "-", 93: "-"})[:90], url=site.url, quiet=True)


def digits(completions: list[str], **_: Any) -> list[float]:
    return [float(sum(letter.isdigit() for letter in text)) for text in completions]


def letters(completions: list[str], role: list[str], **_: Any) -> list[float | None]:
    """Judges solvers only."""
    return [
        float(sum(letter.isalpha() for letter in text)) if who == "solver" else None
        for text, who in zip(completions, role, strict=True)
    ]


def role_of_prompt(text: str) -> int:
    """The index of the role that a prompt is put to."""
    return int(text.partition("+")[0]) % 2


def rows(count: int = 8) -> Dataset:
    return Dataset.from_list([{"prompt": f"{at}+1=", "role": ROLES[at % 2]} for at in range(count)])


def trainer(folder: Path, kind: type[GRPOTrainer] = GRPOTrainer, peft: LoraConfig | None = None, **asked: Any) -> Any:
    fixed = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    usual = {
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "reward_weights": [1.0, 0.5],
    }
    asked = fixed | usual | asked
    return kind(
        model=tiny_model(),
        reward_funcs=[digits, letters],
        args=GRPOConfig(**asked),
        train_dataset=rows(),
        eval_dataset=rows(2) if "eval_strategy" in asked else None,
        processing_class=tiny_tokenizer(),
        peft_config=peft,
    )


class Seen(GRPOTrainer):
    """Keeps each micro-batch that is learned from, and the weights before the first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first = copy.deepcopy(self.model)
        self.batches: list[dict[str, Any]] = []

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if self.model.training:
            self.batches.append(dict(inputs))
        return super()._compute_loss(model, inputs)

    def prompts(self, batch: Mapping[str, Tensor]) -> list[str]:
        return [self.processing_class.decode(ids, skip_special_tokens=True) for ids in batch["prompt_ids"]]

    def gradient(self, batches: list[dict[str, Any]], kept: Callable[[int, Mapping[str, Tensor]], Tensor]) -> Tensor:
        """The gradient of the rows that `kept` marks (B,), given each micro-batch and its number, in a backward of its own."""
        twin = copy.deepcopy(self.first)
        for number, batch in enumerate(batches):
            mask = batch["completion_mask"] * kept(number, batch)[:, None]
            super()._compute_loss(twin, {**batch, "completion_mask": mask}).backward()
        named = [(name, one.grad) for name, one in twin.named_parameters() if one.grad is not None]
        return torch.cat([gradient.flatten() for name, gradient in named if not name.startswith("lm_head")])

    def of_role(self, index: int) -> float:
        """The norm of one role's gradient in the first step."""
        return float(self.gradient(self.batches, lambda _, batch: batch[ROLE_IDS] == index).norm())

    @property
    def whole(self) -> Tensor:
        """The gradient of the first step."""
        return self.gradient(self.batches, lambda _, batch: torch.ones_like(batch[ROLE_IDS]))


def samples(site: Site, run: gradwatch.Run) -> list[Sample]:
    return sorted(site.store.samples(run.id), key=lambda one: one.step)


@pytest.mark.parametrize(("accumulation", "iterations", "generation"), [(1, 1, 1), (2, 1, 4), (1, 2, 4), (2, 2, 2)])
def test_each_rollout_keeps_its_role_through_shuffling_and_splitting(
    accumulation: int, iterations: int, generation: int, site: Site, run: gradwatch.Run, tmp_path: Path
) -> None:
    reuse = {"num_iterations": iterations, "steps_per_generation": generation, "gradient_accumulation_steps": accumulation}
    one = trainer(tmp_path, Seen, max_steps=4, **reuse)
    with run, watch_grpo(one, run=run):
        one.train()
    told = [index for batch in one.batches for index in batch[ROLE_IDS].tolist()]
    assert told == [role_of_prompt(text) for batch in one.batches for text in one.prompts(batch)]
    assert set(told) == {0, 1}
    assert all(ROLES[role_of_prompt(sample.prompt)] == sample.role for sample in samples(site, run))


def test_role_norms_are_those_of_separate_backwards(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, Seen, max_steps=1)
    with run, watch_grpo(one, run=run, engine="split", **WITHOUT_HEAD):
        one.train()
    assert all(set(batch[ROLE_IDS].tolist()) == {0, 1} for batch in one.batches)
    for index, role in enumerate(ROLES):
        assert curve(site, run.id, role=role)[1] == pytest.approx(one.of_role(index), rel=0.01)
    assert curve(site, run.id)[1] == pytest.approx(float(one.whole.norm()), rel=1e-5)


def test_roles_of_low_rank_adapters_are_measured_whole(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, Seen, peft=LoraConfig(r=2, target_modules="all-linear"), max_steps=1)
    with run, watch_grpo(one, run=run):
        one.train()
    for index, role in enumerate(ROLES):
        assert curve(site, run.id, role=role)[1] == pytest.approx(one.of_role(index), rel=1e-3)
    assert curve(site, run.id)[1] == pytest.approx(float(one.whole.norm()), rel=1e-5)
    (coverage,) = [found for found in site.store.curves(run.id) if found.series.metric == "role_grad_coverage"]
    assert (coverage.series.scope, coverage.values) == ("lora", pytest.approx([1.0], rel=1e-5))


def test_what_the_fused_head_hides_is_said_as_coverage(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, Seen, max_steps=1)
    with run, watch_grpo(one, run=run, engine="split"):
        one.train()
    (coverage,) = [found for found in site.store.curves(run.id) if found.series.metric == "role_grad_coverage"]
    hidden = curve(site, run.id, scope="lm_head")[1] ** 2 / curve(site, run.id)[1] ** 2
    assert coverage.values == pytest.approx([1 - hidden], rel=1e-3)


def test_a_sample_has_the_influence_of_its_own_rollout(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, Seen, max_steps=1)
    with run, watch_grpo(one, run=run, engine="neutral", max_overhead=None, **WITHOUT_HEAD):
        one.train()
    whole = one.whole
    true: list[float] = []
    for number, batch in enumerate(one.batches):
        for row in range(len(batch[ROLE_IDS])):
            alone = torch.eye(len(batch[ROLE_IDS]))[row]
            own = one.gradient(one.batches, lambda at, _, number=number, alone=alone: alone * (at == number))
            true.append(float(own @ whole / whole.square().sum()))
    found = {(sample.prompt, sample.output): sample.influence for sample in samples(site, run)}
    shown = [
        (text, one.processing_class.decode(ids[mask.bool()], skip_special_tokens=True))
        for batch in one.batches
        for text, ids, mask in zip(one.prompts(batch), batch["completion_ids"], batch["completion_mask"], strict=True)
    ]
    assert len(found) == len(true)
    assert [found[key] for key in shown] == pytest.approx(true, abs=0.06)


def test_each_rollout_is_logged_once_by_the_step_that_first_learned_from_it(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, Seen, max_steps=4, num_iterations=2)
    with run, watch_grpo(one, run=run, format_valid=str.isalnum):
        one.train()
    logged = samples(site, run)
    assert [sample.step for sample in logged] == [1] * 8 + [3] * 8
    assert len({(sample.step, sample.group) for sample in logged}) == 8
    last = one._logs
    written = sorted(zip(last["prompt"], last["completion"], last["rewards"]["digits"], last["advantages"], strict=True))
    own = sorted(
        (sample.prompt, sample.output, sample.rewards["digits"], sample.advantage) for sample in logged if sample.step == 3
    )
    assert [row[:3] for row in own] == [row[:3] for row in written]
    assert [row[3] for row in own] == pytest.approx([row[3] for row in written])
    for sample in logged:
        assert math.isnan(sample.rewards["letters"]) is (sample.role == "verifier")
        assert sample.format_valid is sample.output.isalnum()
        assert sample.prompt_tokens == len(sample.prompt)
        assert len(sample.output) <= sample.output_tokens <= len(sample.output) + 1


def test_each_generation_logs_what_each_role_earned(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=4, num_iterations=2)
    with run, watch_grpo(one, run=run, format_valid=str.isalnum):
        one.train()

    def logged(metric: str, role: str, stat: str = "", scope: str = "") -> dict[int, float]:
        found = [
            found
            for found in site.store.curves(run.id)
            if (found.series.metric, found.series.role, found.series.stat, found.series.scope) == (metric, role, stat, scope)
        ]
        return {step: value for each in found for step, value in zip(each.steps, each.values, strict=True)}

    for role in ROLES:
        own = [sample for sample in samples(site, run) if sample.role == role]
        for metric, value in {
            "reward": lambda one: one.rewards["digits"] + torch.tensor(one.rewards["letters"] / 2).nan_to_num(),
            "response_length": lambda one: one.output_tokens,
            "format_valid": lambda one: float(one.format_valid),
        }.items():
            means = {step: torch.tensor([float(value(one)) for one in own if one.step == step]).mean() for step in (1, 3)}
            assert logged(metric, role, "mean") == pytest.approx({step: float(mean) for step, mean in means.items()}, rel=1e-5)
        assert list(logged("entropy", role)) == list(logged("perplexity", role)) == [1, 2, 3, 4]
    assert logged("reward_component", "solver", "mean", "letters").keys() == {1, 3}
    assert not logged("reward_component", "verifier", "mean", "letters")


def test_what_the_trainer_logs_is_logged_at_its_own_steps(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=4, num_iterations=2, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=2)
    with run, watch_grpo(one, run=run):
        one.train()
    entries = [entry for entry in one.state.log_history if "train_runtime" not in entry]
    keys = {key for entry in entries for key in entry} - {"step", "grad_norm", "epoch"}
    assert {"reward", "entropy", "rewards/digits/mean", "clip_ratio/high_max", "eval_reward", "eval_loss"} <= keys
    for key in keys - {"entropy"}:
        assert site.curve(run.id, key) == {entry["step"]: entry[key] for entry in entries if entry.get(key) is not None}, key
    assert list(site.curve(run.id, "reward_std")) == [1, 3]


def test_roles_may_have_instances_by_a_function_of_the_row(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    names = [("solver", "solver-0"), ("solver", "solver-1"), ("verifier", "")]

    def name(row: Mapping[str, Any]) -> tuple[str, str]:
        return names[int(row["prompt"].partition("+")[0]) % 3]

    one = trainer(tmp_path, max_steps=1, steps_per_generation=4, gradient_accumulation_steps=4)
    with run, watch_grpo(one, run=run, roles=names, role_of=name, engine="split"):
        one.train()
    assert {(sample.role, sample.agent) for sample in samples(site, run)} == set(names)
    coherence = [found for found in site.store.curves(run.id) if found.series.metric == "instance_coherence"]
    assert [found.series.role for found in coherence] == ["solver"]


def test_without_roles_there_are_samples_and_norms(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=1)
    one.train_dataset = one.train_dataset.rename_column("role", "who")
    one.reward_funcs, one.reward_func_names = [digits, digits], ["a", "b"]
    with run, watch_grpo(one, run=run):
        one.train()
    assert list(curve(site, run.id)) == [1]
    assert {(sample.role, sample.influence) for sample in samples(site, run)} == {("", None)}
    assert len(samples(site, run)) == 8


def test_a_failing_format_check_costs_the_samples_and_nothing_else(
    site: Site, run: gradwatch.Run, tmp_path: Path, live: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    live()
    one = trainer(tmp_path)
    with run, watch_grpo(one, run=run, engine="split", format_valid=lambda text: bool(1 / 0)):
        one.train()
    assert one.state.global_step == 2
    assert list(curve(site, run.id, role="solver")) == [1, 2]
    assert not samples(site, run)
    assert len([record for record in caplog.records if "rollouts of a generation" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"role_of": "speaker"}, "no column 'speaker'.*prompt, role.*role_of="),
        ({"roles": ["solver", "critic"]}, "the role 'verifier', which roles= does not declare: 'solver', 'critic'"),
        ({"role_of": lambda row: "solver"}, r"declare them with roles=\[\.\.\.\]"),
        ({"roles": ["critic"], "role_of": lambda row: row["role"]}, "the role 'solver'"),
        ({"overhead": 0.1}, "no option 'overhead'"),
    ],
)
def test_a_wrong_call_is_refused_and_leaves_the_trainer_as_it_was(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    one = trainer(tmp_path)
    before = dict(vars(one))
    with pytest.raises(SettingsError, match=said):
        watch_grpo(one, **asked)
    assert vars(one) == before


def test_a_trainer_that_drops_the_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="remove_unused_columns=False"):
        watch_grpo(trainer(tmp_path, remove_unused_columns=True))


def test_messages_become_text() -> None:
    assert text_of("as it is") == "as it is"
    assert text_of([{"role": "assistant", "content": "one"}]) == "one"
    parts = [{"type": "text", "text": "two"}, {"type": "image"}]
    assert text_of([{"role": "system", "content": "be"}, {"role": "user", "content": parts}]) == "system: be\nuser: two"


def test_a_metric_of_nan_alone_is_nan_again_and_a_reward_that_judged_nobody_is_absent() -> None:
    logs = {"kl": None, "rewards/letters/mean": None, "eval_rewards/letters/mean": None, "reward": 1, "note": "text"}
    assert to_metrics(logs, has_norm=False) == {"kl": pytest.approx(math.nan, nan_ok=True), "reward": 1.0}


def test_no_role_is_told_apart_where_none_is_declared(site: Site, run: gradwatch.Run, tmp_path: Path) -> None:
    one = trainer(tmp_path, max_steps=1)
    with run, watch_grpo(one, run=run, roles=[]):
        one.train()
    assert not curve(site, run.id, role="solver")
    assert {sample.role for sample in samples(site, run)} == set(ROLES)
