"""Where a model uses its parameters in ways that engines know: linear layers, embeddings, LayerNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from gradwatch.quantities.parameter_groups import Member

EXPERTS = "experts"  # lists of experts get rows that a router chose: their number may line up with the batch's by accident

Kind = Literal["linear", "transposed", "embedding", "layer_norm", "rms_norm"]


@dataclass(frozen=True, slots=True, eq=False)
class WeightUse:
    """A module that uses measured parameters, by their indices; None where it has none, or it is not measured.

    `sizes` are the rows and columns of its weight; a norm's are its length, twice. `linear` is y = xWᵀ + b, `transposed`
    y = xW + b, `embedding` a row of W; norms are y = x̂∘w + b, or with 1 + w for w.
    """

    module: nn.Module
    kind: Kind
    weight: int | None
    bias: int | None
    sizes: tuple[int, int]

    @property
    def indices(self) -> tuple[int, ...]:
        """Those of its parameters."""
        return tuple(index for index in (self.weight, self.bias) if index is not None)

    @property
    def is_norm(self) -> bool:
        """Whether its weight is a vector."""
        return self.kind in ("layer_norm", "rms_norm")

    def among(self, indices: Collection[int]) -> WeightUse:
        """The same use, of those of its parameters that are among these."""
        weight, bias = (index if index in indices else None for index in (self.weight, self.bias))
        return replace(self, weight=weight, bias=bias)

    def is_whole(self, x: Tensor, y: Tensor) -> bool:
        """Whether x and y are the module's whole input and output, not those of a part of it as in tensor parallelism."""
        if self.kind == "embedding":
            return y.shape == (*x.shape, self.sizes[1])
        first, last = self.sizes if self.kind == "transposed" else self.sizes[::-1]
        return x.shape[-1] == first and y.shape == (*x.shape[:-1], last)


def weight_uses(model: nn.Module, members: tuple[Member, ...]) -> tuple[WeightUse, ...]:
    """The known uses of these parameters, in the model's order; a tied weight has several."""
    index_of = {id(one.parameter): index for index, one in enumerate(members)}
    return tuple(_uses(model, index_of))


def _uses(model: nn.Module, index_of: dict[int, int]) -> Iterator[WeightUse]:
    for name, module in model.named_modules():
        if EXPERTS in name.split("."):
            continue
        held = module._parameters
        weight, bias = (index_of.get(id(held.get(name))) for name in ("weight", "bias"))
        kind = _kind(module) if weight is not None or bias is not None else None
        if kind is not None:
            shape = held["weight"].shape if held.get("weight") is not None else held["bias"].shape
            yield WeightUse(module, kind, weight, bias, (shape[0], shape[-1]))


def _kind(module: nn.Module) -> Kind | None:
    forward = type(module).forward
    if forward is nn.Linear.forward:
        return "linear"
    if forward is nn.Embedding.forward:
        return "embedding" if module.max_norm is None and not module.scale_grad_by_freq else None
    if type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils":
        return "transposed"
    if forward is nn.LayerNorm.forward:
        return "layer_norm" if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1 else None
    return "rms_norm" if type(module).__name__.endswith("RMSNorm") and _is_rms_norm(module) else None


def norm_eps(module: nn.Module, dtype: torch.dtype) -> float:
    """What a norm module adds to the mean square."""
    for name in ("variance_epsilon", "eps"):
        eps = getattr(module, name, None)
        if isinstance(eps, float):
            return eps
    return torch.finfo(dtype).eps


def inverse_rms(x_MD: Tensor, eps: float) -> Tensor:
    """1/√(mean x² + eps) of each row, in float32: (M,)."""
    mean_M = torch.linalg.vector_norm(x_MD, dim=-1, dtype=torch.float32).square() / x_MD.shape[-1]
    return torch.rsqrt(mean_M + eps)


def _is_rms_norm(module: nn.Module) -> bool:
    """Whether the gradient of a module's weight is Σ x̂ for that of its output, tried on a copy: authors write such norms anew."""
    weight = module._parameters.get("weight")
    if weight is None or weight.dim() != 1 or len(module._parameters) > 1 or module._modules:
        return False
    trial = copy(module)
    probe = nn.Parameter(torch.linspace(0.5, 1.5, len(weight)))
    trial._parameters = {"weight": probe}
    x_MD = torch.linspace(-1, 2, 3 * len(weight)).square().view(3, -1)
    try:
        with torch.enable_grad():
            (found,) = torch.autograd.grad(type(module).forward(trial, x_MD).sum(), probe)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        return False
    hat_MD = x_MD * inverse_rms(x_MD, norm_eps(module, x_MD.dtype))[:, None]
    return torch.allclose(found, hat_MD.sum(0), rtol=1e-3, atol=1e-4)
