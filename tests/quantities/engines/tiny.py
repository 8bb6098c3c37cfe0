"""Models small enough to run one backward a role beside the one that is measured, and what those separate backwards say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from gradwatch.quantities import group_parameters
from gradwatch.quantities.engines.engine import Target

VOCABULARY = 101


def qwen(*, tied: bool = True, layers: int = 2, seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    model = Qwen2ForCausalLM(config)
    # Weights as after some training: with fresh ones, norms and biases have hardly a gradient.
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def tokens(rows: int = 4, length: int = 12, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def token_losses(model: nn.Module, ids_BT: Tensor) -> Tensor:
    """The loss of each predicted token: (B, T - 1)."""
    logits = model(input_ids=ids_BT).logits[:, :-1].float()
    return cross_entropy(logits.transpose(1, 2), ids_BT[:, 1:], reduction="none")


def target_of(model: nn.Module, speakers: int, seed: int = 0) -> Target:
    return Target(model, group_parameters(model).parameters, speakers, seed=seed)


def flat(model: nn.Module) -> Tensor:
    """The gradient as one vector, float64; 0 where there is none."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).double().reshape(-1) for p in model.parameters()])


def gradient(model: nn.Module, loss: Callable[[], Tensor], context: AbstractContextManager[object] | None = None) -> Tensor:
    model.zero_grad()
    with context or nullcontext():
        value = loss()
    value.backward()
    found = flat(model)
    model.zero_grad()
    return found


def bits(model: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def same(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> bool:
    return all((a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(first, second, strict=True))


def norms(gram_KK: Tensor) -> Tensor:
    return gram_KK.diagonal().sqrt()


def cosines(gram_KK: Tensor) -> Tensor:
    return gram_KK / (norms(gram_KK)[:, None] * norms(gram_KK))


def hooks_of(model: nn.Module) -> int:
    """How many hooks stand on a model's modules and parameters."""
    modules = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())
    return modules + sum(len(p._backward_hooks or ()) for p in model.parameters())
