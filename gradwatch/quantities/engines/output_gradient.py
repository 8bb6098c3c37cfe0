"""Seeing the gradient of a module's output without being part of the graph: no tap, no copy, no bit that could change."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge


def on_output_gradient(output: Tensor, see: Callable[[Tensor], None]) -> GradientEdge | None:
    """Have `see` called in each backward with the gradient of a tensor that was just computed, of as many entries as it has.

    It is a pre-hook of the node that computed the tensor: that node runs whatever is done to the tensor in place afterwards, also
    where it is a view. It lives as long as the graph. Gradients that are not there (None) are not seen. Returns where in the graph
    that is, None where the tensor has no gradient; `see` must not hold it, as nothing would ever free the two.
    """
    base = output._base
    made = output if base is None or base.grad_fn is None or base.numel() != output.numel() else base
    node, position = made.grad_fn, made.output_nr
    if node is None:
        return None

    def before(gradients: tuple[Tensor | None, ...]) -> None:
        gradient = gradients[position]
        if gradient is not None:
            see(gradient.detach())

    node.register_prehook(before)
    return GradientEdge(node, position)


def is_transformed() -> bool:
    """Whether a transform of torch.func is at work: what runs under it adds to no parameter's gradient."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def in_backward() -> bool:
    """Whether a backward pass is running, so that a forward pass now is a recomputation of activation checkpointing."""
    return torch._C._current_graph_task_id() != -1
