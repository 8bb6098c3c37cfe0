"""What watching costs on a GPU, at half a billion parameters: time by the device's own clock, and waits of the host."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradwatch_hooks.torch import StepRecord, Watcher, watch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")

SEQUENCE, ROLES = 1024, ("solver", "critic")
ROUNDS = 20
Step = Callable[[], None]


def make_model() -> nn.Module:
    """The shape of Qwen2-0.5B, with random weights, in bfloat16."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model: nn.Module = Qwen2ForCausalLM(config).to(torch.bfloat16)
    return model.train()


@pytest.fixture(scope="module")
def model() -> Iterator[nn.Module]:
    yield make_model()
    torch.cuda.empty_cache()


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: int) -> Callable[[AbstractContextManager[object]], None]:
    ids_BT = torch.randint(0, 151_936, (tokens // SEQUENCE, SEQUENCE), device="cuda")

    def step(roles: AbstractContextManager[object]) -> None:
        with roles:
            logits_BTV = model(input_ids=ids_BT, use_cache=False).logits[:, :-1]
            cross_entropy(logits_BTV.flatten(0, 1).float(), ids_BT[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def milliseconds(step: Step) -> float:
    """The device's time from before a step to after it, in an empty queue."""
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def syncs(step: Step) -> list[str]:
    """The waits of the host for the device in a step, as torch tells them."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [str(one.message) for one in told if "synchroniz" in str(one.message)]


def speakers(tokens: int) -> Tensor:
    return torch.arange(tokens // SEQUENCE) % len(ROLES)


class Watched:
    """A model in training, watched or not."""

    def __init__(self, model: nn.Module, tokens: int, **options: Any) -> None:
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
        self.step = stepper(model, self.optimizer, tokens)
        self.records: list[StepRecord] = []
        self.role_B = speakers(tokens)
        self._model, self._options = model, options

    def watch(self) -> Watcher:
        return watch(self._model, optimizer=self.optimizer, roles=ROLES, on_record=self.records.append, **self._options)

    def plain(self) -> None:
        self.step(nullcontext())


def medians(model: nn.Module, tokens: int, max_overhead: float | None) -> tuple[float, float]:
    """Milliseconds of a plain step and of a watched one, taken in turns of some steps each."""
    training = Watched(model, tokens, max_overhead=max_overhead)
    plain, watched = [], []
    for _ in range(3):
        training.plain()
    for _ in range(4):
        plain += [milliseconds(training.plain) for _ in range(ROUNDS // 4)]
        with training.watch() as watcher:
            training.step(watcher.roles(training.role_B))
            watched += [milliseconds(lambda: training.step(watcher.roles(training.role_B))) for _ in range(ROUNDS // 4)]
            assert not watcher.failures
    return median(plain), median(watched)


@pytest.mark.parametrize("tokens", [2048, 8192])
def test_auto_stays_within_its_budget(model: nn.Module, tokens: int, record_property: Any) -> None:
    plain, watched = medians(model, tokens, 0.03)
    record_property("ratio", watched / plain)
    assert watched / plain <= 1.05


@pytest.mark.parametrize("tokens", [2048, 8192])
def test_measuring_every_step_costs_no_more_than_a_tenth(model: nn.Module, tokens: int, record_property: Any) -> None:
    plain, watched = medians(model, tokens, None)
    record_property("ratio", watched / plain)
    assert watched / plain <= 1.10


def test_a_record_takes_at_most_one_wait_of_the_host(model: nn.Module) -> None:
    training = Watched(model, 2048, max_overhead=None)
    for _ in range(3):
        training.plain()
    own = len(syncs(training.plain))
    with training.watch() as watcher:
        for _ in range(3):
            training.step(watcher.roles(training.role_B))
        before, steps = len(training.records), 5

        def some() -> None:
            for _ in range(steps):
                training.step(watcher.roles(training.role_B))

        waited = len(syncs(some))
        watcher.flush()
        assert len(training.records) >= before + steps
    assert waited - steps * own <= steps
