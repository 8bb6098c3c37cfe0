"""The engine `lora` on PEFT's adapters: exact over micro-batches, and the gradients untouched."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from quantities.engines.slow_twin import Pass, measure, off, separate_gradients, target
from quantities.engines.tiny import bits, hooks_of, qwen, same, token_losses, tokens
from torch import nn

from gradwatch.quantities import Unavailable
from gradwatch.quantities.engines.lora import LoRA

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's use of transformers

SPEAKERS = [0, 2, 2, 1, 0]


def adapted(dropout: float = 0.0) -> nn.Module:
    config = LoraConfig(r=4, target_modules="all-linear", lora_dropout=dropout, init_lora_weights=False)
    return get_peft_model(qwen(), config)  # type: ignore[return-value, arg-type]


def passes(model: nn.Module, count: int) -> list[Pass]:
    batches = [tokens(len(SPEAKERS), seed=seed) for seed in range(count)]
    return [Pass(lambda ids=ids: token_losses(model, ids).sum(1), SPEAKERS) for ids in batches]


@pytest.mark.parametrize("count", [1, 3])
def test_adapters_are_measured_exactly_however_many_passes_a_step_has(count: int) -> None:
    model = adapted()
    to = target(model, 3)
    trained = {index for index, one in enumerate(to.parameters) if one.parameter.requires_grad}
    steps = passes(model, count)
    truth = separate_gradients(to, steps, trained)
    for one in steps:
        one.losses().sum().backward()
    expected = bits(model)
    engine = LoRA(to)
    for _ in range(2):
        model.zero_grad()
        reading = measure(engine, steps, 3)
        assert reading.covered == trained
        assert reading.norm_error <= 1e-6
        assert off(reading, truth) <= 1e-6
        assert same(bits(model), expected)
        engine.clear()
    engine.detach()
    assert not hooks_of(model)


def test_two_processes_sums_add_up_to_those_of_one() -> None:
    model = adapted()
    to = target(model, 3, is_spread=True)
    steps = passes(model, 2)
    trained = {index for index, one in enumerate(to.parameters) if one.parameter.requires_grad}
    truth = separate_gradients(to, steps, trained)
    total = torch.zeros(())
    for one in steps:  # each its own process
        engine = LoRA(to)
        measure(engine, [one], 3)
        sums = engine.sums()
        assert sums is not None
        total = total + sums
    reading = engine.conclude(total)
    assert not isinstance(reading, Unavailable)
    assert off(reading, truth) <= 1e-6


def test_dropout_in_front_of_an_adapter_changes_nothing_of_the_training() -> None:
    model = adapted(dropout=0.5).train()
    (one,) = passes(model, 1)
    torch.manual_seed(3)
    one.losses().sum().backward()
    expected = bits(model)
    model.zero_grad()
    torch.manual_seed(3)
    measure(LoRA(target(model, 3)), [one], 3)
    assert same(bits(model), expected)
