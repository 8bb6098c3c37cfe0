"""Role gradients in the Dr. MAS fork of verl, against a stub built from its documented shapes; the fork itself needs CUDA."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch
from cases.site import Site
from contracts.hook_contract import curve
from hooks.verl_stub import Actor, DataProto, TokenModel  # noqa: TID251 - the folder of these tests
from torch import Tensor

import gradwatch
from gradwatch.errors import SettingsError
from gradwatch_hooks.verl import watch_dp_actor
from gradwatch_hooks.watching.record import StepRecord


def proto() -> DataProto:
    """A batch of the Dr. MAS fork: two rows a mini-batch."""
    prompt, response = 2, 3
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, 11, (4, prompt + response), generator=generator)
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    advantages = torch.tensor([1.0, -2.0, 0.5, 3.0])[:, None].expand(4, response)
    return DataProto(
        {"input_ids": ids, "attention_mask": mask, "responses": ids[:, prompt:], "advantages": advantages},
        {"agent_id": ["Solver Agent", "Verifier Agent"] * 2, "wg_id": ["Qwen2.5-7B_SolverAgent_VerifierAgent"] * 4},
    )


AGENTS = ("Solver Agent", "Verifier Agent")


def true_actor_norms() -> list[list[float]]:
    """Agent → mini-batch → norm, each by a backward of its own, at the first weights."""
    data, norms = proto(), []
    for agent in range(2):
        norms.append([])
        for mini in (0, 2):
            net = TokenModel()
            mask = data.batch["attention_mask"][mini : mini + 2, 2:]
            row = mini + agent
            log_prob = (net(data.batch["input_ids"][row : row + 1]) * data.batch["attention_mask"][row])[:, 2:]
            (-(log_prob * data.batch["advantages"][row] * data.batch["attention_mask"][row, 2:]).sum() / mask.sum()).backward()
            norms[-1].append(float(torch.stack([one.grad.norm() for one in net.parameters() if one.grad is not None]).norm()))
    return norms


@pytest.mark.parametrize("packed", [False, True])
def test_agents_of_the_dr_mas_fork_are_kept_to_the_micro_batches(site: Site, packed: bool) -> None:
    net = TokenModel()
    actor = Actor(net, torch.optim.SGD(net.parameters(), 0.0), mini=2, micro=2)
    actor.use_remove_padding = packed
    group = "Qwen2.5-7B_SolverAgent_VerifierAgent"
    name = f"dr-mas-{packed}"
    with (
        gradwatch.init(id=name, url=site.url, mode="online", quiet=True) as run,
        watch_dp_actor(actor, run, AGENTS, policy=group, engine="split", max_overhead=None),
    ):
        actor.compute_log_prob(proto())
        metrics = actor.update_policy(proto())
    whole = curve(site, name, policy=group)
    assert list(whole.values()) == pytest.approx(metrics[f"actor/{group}/grad_norm"], rel=1e-5)
    for agent, truth in zip(AGENTS, true_actor_norms(), strict=True):
        assert list(curve(site, name, role=agent, policy=group).values()) == pytest.approx(truth, rel=0.01)


def test_the_fork_selects_what_it_always_did_beside_the_role_ids() -> None:
    seen: list[set[str]] = []

    class Seeing(Actor):
        def _forward_micro_batch(self, micro_batch: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
            seen.append(set(micro_batch))
            return super()._forward_micro_batch(micro_batch, *args, **kwargs)

    net = TokenModel()
    actor = Seeing(net, torch.optim.SGD(net.parameters(), 0.1), mini=4, micro=4)
    with watch_dp_actor(actor, gradwatch.init(mode="disabled"), AGENTS):
        actor.update_policy(proto())
    actor.update_policy(proto())
    assert seen[0] - seen[1] == {"role_ids"}
    assert seen[1] <= seen[0]
    assert "update_policy" not in vars(actor)


@pytest.mark.parametrize(("actor", "match"), [(object(), "has no update_policy"), (Actor(TokenModel(), None, 2, 2), "reference")])
def test_what_is_no_training_actor_is_refused(actor: Any, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        watch_dp_actor(actor, roles=AGENTS)


def test_a_step_that_the_fork_leaves_out_is_recorded_as_skipped() -> None:
    net = TokenModel()
    actor = Actor(net, torch.optim.SGD(net.parameters(), 0.1), mini=4, micro=4)
    records: list[StepRecord] = []
    data = proto()
    data.batch["advantages"] = data.batch["advantages"] * math.nan
    with watch_dp_actor(actor, gradwatch.init(mode="disabled"), AGENTS, on_record=records.append):
        actor.update_policy(data)
        actor.update_policy(proto())
    assert [record.skipped for record in records] == [True, False]
    assert math.isnan(cast(float, records[0].grad_norm))
