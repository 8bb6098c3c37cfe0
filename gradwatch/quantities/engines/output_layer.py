"""Where a model makes its logits."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


def output_layer(model: nn.Module) -> nn.Module:
    """The module whose output the logits are: what `get_output_embeddings()` says (transformers), else the model itself."""
    held = set(model.modules())
    for module in model.modules():
        ask = getattr(module, "get_output_embeddings", None)
        found = ask() if callable(ask) else None
        if isinstance(found, nn.Module) and found in held:
            return found
    return model


def logits_of(output: object) -> Tensor | None:
    """The logits within what a module returned: itself, its `logits`, or the first of several."""
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    return output[0] if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor) else None
