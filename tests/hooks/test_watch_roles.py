"""Roles in a plain loop, through `watch`: which engine measures them, how they are said, and what is wrong to say."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from loops.speaking import SEQUENCES, TOKENS, Speaking, losses, tokens, true_gram
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.policy import PolicyBatch
from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch.quantities.unavailable import Unavailable
from gradwatch_hooks.torch import watch
from gradwatch_hooks.watching.record import to_log


def assert_agrees(roles: RoleGradients | Unavailable | None, gram: Tensor, names: Sequence[str]) -> None:
    assert isinstance(roles, RoleGradients), roles
    for k, role in enumerate(names):
        assert roles.norm(role) == pytest.approx(math.sqrt(gram[k, k]), rel=max(roles.norm_error, 1e-5))
        assert roles.share(role) == pytest.approx(float(gram[k].sum() / gram.sum()), abs=max(0.05, 3 * roles.norm_error))
    cosine = float(gram[0, 1] / (gram[0, 0] * gram[1, 1]).sqrt())
    assert roles.cosine(names[0], names[1]) == pytest.approx(cosine, abs=max(roles.cosine_error, 1e-5))


@pytest.mark.parametrize("engine", ["auto", "exact", "split", "neutral"])
def test_a_mixed_batch_is_told_apart_in_one_backward(engine):
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ids = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1])
    with watch(model, optimizer=optimizer, engine=engine, max_overhead=None, on_record=records.append) as watcher:
        for number in range(3):
            optimizer.zero_grad()
            truth = true_gram(model, [losses(model, tokens(number))[ids == k].sum() / 40 for k in (0, 1)])
            with watcher.roles(ids, names=["solver", "verifier"]):
                (losses(model, tokens(number)).sum() / 40).backward()
            optimizer.step()
            assert_agrees(records[-1].roles, truth, ("solver", "verifier"))
    assert {one.roles.engine for one in records} == {"neutral" if engine == "auto" else engine}
    assert all(one.roles.coverage == pytest.approx(1) for one in records)


@pytest.mark.parametrize("says", ["by name", "by ids"])
def test_micro_batches_of_one_role_each_are_measured_by_their_own_backward(says):
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], max_overhead=None, on_record=records.append) as watcher:
        for number in range(2):
            optimizer.zero_grad()
            truth = true_gram(model, [losses(model, tokens(2 * number + k)).mean() for k in (0, 1)])
            for k in (0, 1):
                with watcher.role("ab"[k]) if says == "by name" else watcher.roles([k] * SEQUENCES):
                    losses(model, tokens(2 * number + k)).mean().backward()
            optimizer.step()
            assert_agrees(records[-1].roles, truth, "ab")
    assert {one.roles.engine for one in records} == {"micro"}


def test_roles_need_not_be_declared_on_one_process():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, on_record=records.append) as watcher:
        for role in ("solver", "verifier", "judge"):
            with watcher.role(role):
                losses(model, tokens(len(role))).mean().backward()
        optimizer.step()
    assert records[0].roles.roles == ("solver", "verifier", "judge")


def test_several_roles_in_one_sequence_are_the_roles_of_their_losses():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1]] * SEQUENCES)
    with watch(model, optimizer=optimizer, max_overhead=None, on_record=records.append) as watcher:
        parts = losses(model, tokens(0))
        truth = true_gram(model, [parts[:, :2].sum() / 40, parts[:, 2:].sum() / 40])
        with watcher.roles(ids, names=["a", "b"]):
            (losses(model, tokens(0)).sum() / 40).backward()
        optimizer.step()
    assert records[0].roles.engine == "backwards"
    assert_agrees(records[0].roles, truth, "ab")


def test_instances_of_a_role_have_a_coherence():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    names = [("solver", "0"), ("solver", "1"), "verifier"]
    ids = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    with watch(model, optimizer=optimizer, engine="exact", on_record=records.append) as watcher:
        parts = losses(model, tokens(0))
        truth = true_gram(model, [parts[ids == k].sum() for k in range(3)])
        with watcher.roles(ids, names):
            losses(model, tokens(0)).sum().backward()
        optimizer.step()
    roles = records[0].roles
    assert roles.instances("solver") == 2
    assert roles.coherence("solver") == pytest.approx(float(truth[:2, :2].sum() / truth[:2, :2].trace()), rel=1e-5)
    logged = {(name, one.role, one.agent) for one in to_log(records[0]) for name in one.metrics}
    assert ("instance_coherence", "solver", "") in logged
    assert ("grad_norm", "solver", "1") in logged


def test_a_mask_makes_counts_in_tokens():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mask = torch.zeros(SEQUENCES, TOKENS)
    mask[0], mask[1, :2], mask[5, 3] = 1, 1, 1
    with watch(model, optimizer=optimizer, on_record=records.append) as watcher:
        with watcher.roles([0] + [1] * 7, ["a", "b"], mask=mask):
            (losses(model, tokens(0)) * mask[:, 1:]).sum().backward()
        optimizer.step()
    assert records[0].roles.counts[:2] == (6.0, 3.0)
    assert records[0].roles.norm_per_share("b") == pytest.approx(records[0].roles.norm("b") * 3)


def test_sequences_without_a_role_belong_to_nobody_and_still_to_the_whole():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, engine="exact", on_record=records.append) as watcher:
        with watcher.roles([0, 1, -1, -1, 0, 1, 0, 1], ["a", "b"]):
            losses(model, tokens(0)).sum().backward()
        optimizer.step()
    roles = records[0].roles
    assert roles.roles == ("a", "b")
    assert roles.share("a") + roles.share("b") != pytest.approx(1, abs=1e-3)


def test_a_backward_outside_of_the_roles_makes_them_unavailable_not_wrong():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, engine="exact", on_record=records.append) as watcher:
        with watcher.roles([0, 1] * 4, ["a", "b"]):
            losses(model, tokens(0)).mean().backward()
        losses(model, tokens(1)).mean().backward()
        optimizer.step()
    assert isinstance(records[0].roles, Unavailable)
    assert "a backward ran outside of the roles" in records[0].roles.reason


def test_a_step_that_turns_mixed_is_unavailable_and_the_next_is_measured():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], max_overhead=None, on_record=records.append) as watcher:
        for _ in range(2):
            optimizer.zero_grad()
            for ids in ([0] * SEQUENCES, [0, 1] * 4):
                with watcher.roles(ids):
                    losses(model, tokens(1)).mean().backward()
            optimizer.step()
    assert isinstance(records[0].roles, Unavailable)
    assert isinstance(records[1].roles, RoleGradients)


def test_a_compiled_model_is_left_alone_and_says_how_to_measure_it():
    model = Speaking()
    records, optimizer = [], torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model, backend="eager")
    with watch(compiled, optimizer=optimizer, on_record=records.append) as watcher:
        with watcher.roles([0, 1] * 4, ["a", "b"]):
            losses(compiled, tokens(0)).mean().backward()
        optimizer.step()
    assert records[0].grad_norm > 0
    assert "Give each role its own micro-batch" in records[0].roles.reason


@pytest.mark.parametrize(
    ("ids", "names", "says"),
    [
        (torch.zeros(2, 2, 2, dtype=torch.int64), ["a", "b"], r"shape \(2, 2, 2\)"),
        ([0, 2], ["a", "b"], "ids from 0 to 2"),
        ([0, 1], ["b", "a"], "this model is watched with 'a', 'b'"),
    ],
)
def test_wrong_roles_are_refused_before_the_first_step_and_counted_after_it(ids, names, says, live, caplog):
    model = Speaking()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], on_record=lambda _: None) as watcher:
        with pytest.raises(SettingsError, match=says), watcher.roles(ids, names):
            raise AssertionError("not reached")
        losses(model, tokens(0)).mean().backward()
        optimizer.step()
        live()
        reached = 0
        for _ in range(2):
            with watcher.roles(ids, names):
                losses(model, tokens(0)).mean().backward()
                reached += 1
            optimizer.step()
        assert (reached, watcher.failures) == (2, 2)
    assert sum(one.levelno >= logging.ERROR for one in caplog.records) == 1


def test_an_unknown_role_is_refused_with_the_known_ones():
    watcher = watch(Speaking(), roles=["a", "b"], on_record=lambda _: None)
    with pytest.raises(SettingsError, match="role 'c' is not among 'a', 'b'"), watcher.role("c"):
        raise AssertionError("not reached")


def test_roles_left_open_are_refused_at_the_next():
    with watch(Speaking(), roles=["a", "b"], on_record=lambda _: None) as watcher:
        watcher.open_roles([0, 1])
        with pytest.raises(SettingsError, match="roles are still open"):
            watcher.open_roles([0, 1])
        watcher.close_roles()
        watcher.open_roles([0, 1])


def test_an_error_of_the_users_own_passes_through_and_closes_the_roles():
    with watch(Speaking(), roles=["a", "b"], on_record=lambda _: None) as watcher:
        with pytest.raises(ZeroDivisionError), watcher.roles([0, 1]):
            _ = 1 / 0
        with watcher.role("a"):
            pass


def test_samples_carry_their_influence_on_the_step(site):
    import gradwatch

    model = Speaking()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    weights = torch.ones(SEQUENCES)
    weights[3] = 50.0
    with gradwatch.init(id="influence", url=site.url, quiet=True) as run, watch(model, run=run, optimizer=optimizer) as watcher:
        with watcher.roles([0, 1] * 4, ["a", "b"]):
            (losses(model, tokens(0)).mean(1) * weights).sum().backward()
        watcher.log_samples({"output": f"text {at}", "role": "ab"[at % 2]} for at in range(SEQUENCES))
        optimizer.step()
    samples = sorted(site.store.samples("influence"), key=lambda one: -one.influence)
    assert len(samples) == SEQUENCES
    assert samples[0].output == "text 3"
    assert samples[0].influence > 0.8
    assert sum(one.influence for one in samples) == pytest.approx(1, abs=1e-3)


def test_the_budget_lowers_the_frequency_and_says_so(caplog):
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, engine="exact", max_overhead=0.001, on_record=records.append) as watcher:
        for number in range(40):
            optimizer.zero_grad()
            with watcher.roles([0, 1] * 4, ["a", "b"]):
                losses(model, tokens(number)).mean().backward()
            optimizer.step()
    measured = [one for one in records if one.roles is not None]
    assert 1 <= len(measured) < len(records)
    assert all(one.grad_norm is not None for one in records)
    assert any("to stay below 0.1 % of the time (max_overhead)" in one.message for one in caplog.records)


def test_quantities_of_the_policy_are_logged_by_role_at_the_step(site):
    import gradwatch

    model = Speaking()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with (
        gradwatch.init(id="policy", url=site.url, quiet=True) as run,
        watch(model, run=run, optimizer=optimizer, first_step=7) as watcher,
    ):
        logprobs = -losses(model, tokens(0))
        watcher.observe(PolicyBatch(logprobs.detach(), torch.ones_like(logprobs), torch.tensor([0, 1] * 4), ("a", "b")))
        logprobs.mean().neg().backward()
        optimizer.step()
    found = {(one.series.metric, one.series.role): (one.steps[0], one.values[0]) for one in site.store.curves("policy")}
    expected = (-logprobs[0::2].mean(1)).exp().mean().item()
    assert found["perplexity", "a"] == (7, pytest.approx(expected, rel=1e-5))
    assert {role for metric, role in found if metric == "perplexity"} == {"", "a", "b"}


def test_advantages_and_sequence_gradients_make_the_measured_inflation_and_the_noise_scale(site):
    import gradwatch

    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    advantages = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0, 1.0, 2.0, -0.5])
    roles = [0, 1] * 4
    with gradwatch.init(id="inflation", url=site.url, quiet=True) as run:
        watcher = watch(model, run=run, optimizer=optimizer, on_record=records.append)
        scores = [true_gram(model, [one])[0, 0].item() for one in losses(model, tokens(0)).sum(1)]
        with watcher.roles(roles, ["a", "b"]):
            (losses(model, tokens(0)).sum(1) * advantages).sum().backward()
        watcher.log_samples(
            {"role": "ab"[role], "advantage": float(one)} for role, one in zip(roles, advantages.tolist(), strict=True)
        )
        optimizer.step()
        watcher.detach()
    curves = [one for one in site.store.curves("inflation") if not one.series.stat]
    found = {(one.series.metric, one.series.role): one.values[0] for one in curves}
    for role in (0, 1):
        own = [(advantages[at].item() ** 2, scores[at]) for at in range(SEQUENCES) if roles[at] == role]
        measured = sum(a * s for a, s in own) / sum(s for _, s in own)
        assert found["measured_inflation", "ab"[role]] == pytest.approx(measured, rel=0.25)
        assert found["predicted_inflation", "ab"[role]] == pytest.approx(sum(a for a, _ in own) / len(own), rel=1e-6)
    squares = [a.item() ** 2 * s for a, s in zip(advantages, scores, strict=True)]
    assert records[0].roles.squares == pytest.approx(squares, rel=0.35)
    assert records[0].noise_scale is None or records[0].noise_scale > 0


def test_roles_may_be_said_by_name_one_for_each_sequence():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, engine="exact", roles=["a", "b"], on_record=records.append) as watcher:
        with watcher.roles(["b", "a"] * 4, mask=[1] * SEQUENCES):
            losses(model, tokens(0)).sum().backward()
        optimizer.step()
        with pytest.raises(SettingsError, match="role 'c' is not among"), watcher.roles(["c"] * SEQUENCES):
            pass
    assert records[0].roles.counts[:2] == (4.0, 4.0)
    assert records[0].roles.norm("b") > 0


def test_one_name_alone_is_no_list_of_roles():
    with pytest.raises(SettingsError, match=r"roles='solver': give a list of names, such as \['solver'\]"):
        watch(Speaking(), roles="solver", on_record=lambda _: None)


def test_a_watcher_that_saw_no_step_says_what_it_needs(caplog):
    model = Speaking()
    with watch(model, on_record=lambda _: None):
        losses(model, tokens(0)).mean().backward()
    assert any("give watch(optimizer=...)" in one.message for one in caplog.records)


def test_after_detach_roles_say_nothing_and_hook_nothing():
    model = Speaking()
    watcher = watch(model, roles=["a", "b"], on_record=lambda _: None)
    watcher.detach()
    with watcher.roles([0, 1] * 4):
        losses(model, tokens(0)).mean().backward()
    assert not any(one._forward_hooks for one in model.modules())


def test_wrong_roles_in_a_part_of_a_step_leave_the_other_part_unmeasured_too(live):
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], max_overhead=None, on_record=records.append) as watcher:
        for wrong in (0, 7):
            live()
            for ids in ([0] * SEQUENCES, [wrong] * SEQUENCES):
                with watcher.roles(ids):
                    losses(model, tokens(0)).mean().backward()
            optimizer.step()
    assert isinstance(records[0].roles, RoleGradients)
    assert "given roles that are wrong" in records[1].roles.reason


def test_a_block_that_an_error_ended_leaves_the_step_without_roles():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], on_record=records.append) as watcher:
        with watcher.role("a"):
            losses(model, tokens(0)).mean().backward()
        with pytest.raises(ZeroDivisionError), watcher.role("b"):
            losses(model, tokens(1)).mean() / (1 / 0)
        optimizer.step()
    assert "an error ended a block of roles" in records[0].roles.reason


def test_an_empty_micro_batch_does_not_change_how_roles_are_measured():
    model, records = Speaking(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer=optimizer, roles=["a", "b"], on_record=records.append) as watcher:
        for ids in (torch.zeros(SEQUENCES, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)):
            with watcher.roles(ids, mask=torch.ones(len(ids), TOKENS)):
                losses(model, tokens(0)[: len(ids)]).sum().backward()
        optimizer.step()
    assert records[0].roles.engine == "micro"
    assert records[0].roles.counts[0] == SEQUENCES * TOKENS


def test_fifty_steps_with_split_are_those_without_to_rounding():
    watched, plain = Speaking(), Speaking()
    for model in (watched, plain):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        watcher = None
        if model is watched:
            watcher = watch(
                model, optimizer=optimizer, engine="split", roles=["a", "b"], max_overhead=None, on_record=lambda _: None
            )
        for number in range(50):
            optimizer.zero_grad()
            with watcher.roles([0, 1, number % 2, 1] * 2) if watcher is not None else nullcontext():
                losses(model, tokens(number)).mean().backward()
            optimizer.step()
        if watcher is not None:
            watcher.detach()
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
