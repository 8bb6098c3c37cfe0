"""Training steps of small language models, shaped as Qwen2, whose sequences belong to roles: what the hooks are measured in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gradwatch
from gradwatch_hooks.torch import watch

SEQUENCES, TOKENS, VOCABULARY = 8, 256, 1024
Step = Callable[[], object]
Around = Callable[[Tensor], AbstractContextManager[object]]


class Shape(NamedTuple):
    """Sizes of a model: 4 layers, weights of embedding and head tied."""

    width: int
    heads: int
    keys: int
    inner: int


MODELS = {"A": Shape(256, 4, 1, 1024), "B": Shape(512, 8, 2, 1216)}
"""4.1 and 10.6 million parameters."""


def make_model(shape: Shape, lora: bool = False) -> nn.Module:
    """A model with random weights, the same each time; with `lora`, only adapters of rank 8 on every linear layer train."""
    from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=4,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.keys,
        max_position_embeddings=TOKENS,
        tie_word_embeddings=True,
    )
    model: nn.Module = Qwen2ForCausalLM(config)
    if lora:
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415

        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
    return model.train()


class Loop:
    """A model in training on one batch: 8 sequences of 256 tokens, sequence i of role i mod K."""

    def __init__(self, shape: Shape, roles: int, lora: bool = False) -> None:
        self.model = make_model(shape, lora)
        self.parameters = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5)
        self.names = tuple(f"role{k}" for k in range(roles))
        self.ids_BT = torch.randint(0, VOCABULARY, (SEQUENCES, TOKENS), generator=torch.Generator().manual_seed(1))
        self.role_B = torch.arange(SEQUENCES) % roles

    def losses(self, ids_BT: Tensor) -> Tensor:
        """The loss of each token, over the number of tokens of the whole batch."""
        logits_BTV = self.model(input_ids=ids_BT, use_cache=False).logits[:, :-1]
        losses = cross_entropy(logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten(), reduction="none")
        return losses.view(len(ids_BT), -1) / (SEQUENCES * (TOKENS - 1))

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def mixed(self, around: Around = lambda _: nullcontext()) -> None:
        """One step on all sequences at once."""
        with around(self.role_B):
            self.losses(self.ids_BT).sum().backward()
        self.update()

    def by_role(self, around: Around = lambda _: nullcontext()) -> None:
        """One step on a micro-batch of each role, of 8 sequences each."""
        for role in range(len(self.names)):
            with around(torch.full_like(self.role_B, role)):
                self.losses(self.ids_BT).sum().backward()
        self.update()

    def parted(self, around: Around = lambda _: nullcontext()) -> None:
        """One step on a micro-batch of each role, which share the 8 sequences."""
        for role in range(len(self.names)):
            own = self.role_B == role
            with around(self.role_B[own]):
                self.losses(self.ids_BT[own]).sum().backward()
        self.update()

    def k_backwards(self) -> None:
        """One forward pass and a backward for each role, and the inner products of what they leave."""
        losses_B = self.losses(self.ids_BT).sum(1)
        each = []
        for role in range(len(self.names)):
            loss = losses_B[self.role_B == role].sum()
            each.append(torch.autograd.grad(loss, self.parameters, retain_graph=role < len(self.names) - 1))
        [[sum(torch.dot(a.flatten(), b.flatten()) for a, b in zip(one, other, strict=True)) for other in each] for one in each]
        for parameter, *parts in zip(self.parameters, *each, strict=True):
            parameter.grad = torch.stack(parts).sum(0)
        self.update()


class Setting(NamedTuple):
    """What a variant runs on: the size, how many roles, and a folder for what it writes."""

    shape: Shape
    roles: int
    folder: Path


@contextmanager
def plain(setting: Setting, way: str = "mixed", lora: bool = False) -> Iterator[Step]:
    yield getattr(Loop(setting.shape, setting.roles, lora), way)


@contextmanager
def watched(setting: Setting, engine: str, way: str = "mixed", lora: bool = False, measured: int | None = None) -> Iterator[Step]:
    """`watch` with an engine that measures every step, or only the first `measured` ones: later ones tell no roles."""
    loop = Loop(setting.shape, setting.roles, lora)
    run = gradwatch.init(mode="offline", dir=setting.folder / "spool", quiet=True)
    watcher = watch(loop.model, run=run, optimizer=loop.optimizer, roles=loop.names, engine=engine, max_overhead=None)
    steps = count()
    yield lambda: getattr(loop, way)(watcher.roles if measured is None or next(steps) < measured else lambda _: nullcontext())
    failures = watcher.failures
    watcher.detach()
    run.finish()
    if failures:
        raise RuntimeError(f"the engine {engine!r} failed {failures} times: see the log above")


@contextmanager
def wandb_watched(setting: Setting, log: str) -> Iterator[Step]:
    """`wandb.watch`, every step."""
    wandb: Any = __import__("wandb")
    loop = Loop(setting.shape, setting.roles)
    settings = wandb.Settings(silent=True)
    run = wandb.init(project="bench", mode="offline", dir=str(setting.folder), settings=settings, reinit="return_previous")
    run.watch(loop.model, log=log, log_freq=1)

    def step() -> None:
        loop.mixed()
        run.log({"loss": 0.0})

    yield step
    run.unwatch(loop.model)
    run.finish()


VARIANTS: dict[str, Callable[[Setting], AbstractContextManager[Step]]] = {
    "plain": plain,
    "plain, by role": lambda setting: plain(setting, "by_role"),
    "plain, parted": lambda setting: plain(setting, "parted"),
    "plain, LoRA": lambda setting: plain(setting, lora=True),
    "no roles": lambda setting: watched(setting, "auto", measured=0),
    "micro": lambda setting: watched(setting, "micro", "by_role"),
    "micro, parted": lambda setting: watched(setting, "micro", "parted"),
    "LoRA": lambda setting: watched(setting, "lora", lora=True),
    "neutral": lambda setting: watched(setting, "neutral"),
    "neutral, not measured": lambda setting: watched(setting, "neutral", measured=1),
    "split": lambda setting: watched(setting, "split"),
    "exact": lambda setting: watched(setting, "exact"),
    "backwards": lambda setting: watched(setting, "backwards"),
    "K backwards by hand": lambda setting: plain(setting, "k_backwards"),
    "wandb.watch(gradients)": lambda setting: wandb_watched(setting, "gradients"),
    "wandb.watch(all)": lambda setting: wandb_watched(setting, "all"),
}
"""Each makes a step; what it watches with stays attached from step to step."""

BASES = {"micro": "plain, by role", "micro, parted": "plain, parted", "LoRA": "plain, LoRA"}
"""What a variant is compared with, where that is not `plain`."""
