"""The engine for mixed batches that changes no gradient bit: a token sketch every step, and the exact engine every so many."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.output_gradient import in_backward, is_transformed, on_output_gradient
from gradwatch.quantities.engines.pieces import pieces_of
from gradwatch.quantities.engines.sequence_sketch import SequenceSketch
from gradwatch.quantities.engines.token_sketch import TokenSketch
from gradwatch.quantities.engines.weight_uses import WeightUse, weight_uses
from gradwatch.quantities.own_hook import OwnHook
from gradwatch.quantities.role_gradients import RoleGradReading, gram_of
from gradwatch.quantities.roles import NOBODY, BatchRoles
from gradwatch.quantities.unavailable import Unavailable

EXACT_EVERY = 20  # steps
SIGMAS = 3
NOTHING = (
    "no gradient reached a linear layer, an embedding or a norm whose input lines up with the batch that the roles were given for: "
    "the ids are not one a row of the model's input, forward or backward ran outside of the roles, the modules take their inputs "
    "in another order, or the model is compiled (give each role its own micro-batch, or choose engine='exact')"
)


class Neutral:
    """Sketches what each sequence adds to the gradient, and leaves the pass as it is: hooks only look.

    The vectors of the sequences (see `TokenSketch`) are added up for each speaker; with the sum of all, each also tells the
    sequence's influence. In every `exact_every`-th of the steps that are measured (0: never), the first included, the reading is
    that of the engine `exact`, which costs about a quarter of a step. Errors are three standard deviations, estimated from the
    sketch itself. The memory is one vector a sequence, of at most 70,000 numbers, until the step ends.

    `sketch` says how vectors are made. Covered are weights and biases of linear layers, embeddings, LayerNorm and RMSNorm that line
    up with the batch at every use.
    """

    name = "neutral"

    def __init__(self, target: Target, exact_every: int = EXACT_EVERY, rank: int | None = None) -> None:
        self._target = target
        self._all_uses = self._uses = weight_uses(target.model, target.parameters)
        shapes = {index: target.parameters[index].parameter.shape for use in self._uses for index in use.indices}
        self.sketch = TokenSketch(
            {index: shape for index, shape in shapes.items() if len(shape) == 2},
            {index: shape for index, shape in shapes.items() if len(shape) == 1},
            rank,
            target.seed,
        )
        self._exact = Exact(replace(target, may_trace=False)) if exact_every else None
        self._every = exact_every
        self._steps = 0
        self._handles: list[RemovableHandle] = []
        self._passes: list[SequenceSketch] = []
        self._open: SequenceSketch | None = None

    def begin(self, batch: BatchRoles) -> None:
        """Sketch what the forward passes up to `end` add in their backward."""
        if not self._handles:
            trained = {index for index, one in enumerate(self._target.parameters) if one.parameter.requires_grad}
            self._uses = tuple(use for use in (one.among(trained) for one in self._all_uses) if use.indices)
            hooks = [(use.module, OwnHook(partial(self._on_forward, use))) for use in self._uses]
            self._handles = [module.register_forward_hook(hook, prepend=True) for module, hook in hooks]
        self._open = SequenceSketch(pieces_of(batch, self._target.speakers), self.sketch)
        self._passes.append(self._open)
        if self._is_exact and self._exact is not None:
            self._exact.begin(batch)

    def end(self) -> None:
        """Sketch no further forward pass."""
        self._open = None
        if self._is_exact and self._exact is not None:
            self._exact.end()

    def sums(self) -> Tensor:
        """(n,): the speakers' sketches; on several processes then the exact engine's sums, and 1 if it measured."""
        sketch_KR = self._of_speakers()
        if self._exact is None or not self._target.is_spread:
            return sketch_KR.reshape(-1)
        exact = self._exact.sums()
        flag = sketch_KR.new_full((1,), float(self._is_exact))
        return torch.cat([sketch_KR.reshape(-1), *([] if exact is None else [exact.reshape(-1)]), flag])

    def conclude(self, sums: Tensor | None, loss_scale: Tensor | float = 1.0) -> RoleGradReading | Unavailable:
        """The exact engine's reading in the steps that are its own, else that of the sketch; influence is always the sketch's."""
        sums = self.sums() if sums is None else sums
        covered = self._covered()
        if not covered:
            return Unavailable(NOTHING)
        size = self._target.speakers * self.sketch.width
        sketch_KR = self.sketch.without(sums[:size].view(self._target.speakers, -1), self._missed())
        influence_N, squares_N = self._influence(sketch_KR.sum(0)), self._squares(loss_scale)
        exact = self._read_exact(sums[size:], loss_scale)
        if isinstance(exact, RoleGradReading):
            return replace(exact, engine=self.name, influence_N=influence_N, squares_N=squares_N)
        deviation = SIGMAS * self.sketch.relative_variance(sketch_KR).max().sqrt()
        coarseness = max(one.coarseness for one in self._passes)
        return RoleGradReading(
            self.name,
            gram_of(sketch_KR) / loss_scale**2,
            covered,
            norm_error=deviation / 2 + coarseness,
            cosine_error=deviation + coarseness,
            influence_N=influence_N,
            squares_N=squares_N,
            by_position=any(one.pieces.batch.is_mixed_within for one in self._passes),
        )

    def clear(self) -> None:
        """Forget everything measured, and begin the next step."""
        self._steps += bool(self._passes)
        self._passes, self._open = [], None
        self._unhook()
        if self._exact is not None:
            self._exact.clear()

    def detach(self) -> None:
        """Leave the model as it was."""
        self._unhook()
        if self._exact is not None:
            self._exact.detach()

    @property
    def _is_exact(self) -> bool:
        return self._exact is not None and self._steps % self._every == 0

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _on_forward(self, use: WeightUse, module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        # What is traced becomes part of the graph, and torch loses gradients around what it cannot trace.
        if torch.compiler.is_compiling():
            return
        if not torch.is_grad_enabled() or not isinstance(output, Tensor) or not output.requires_grad or is_transformed():
            return
        current = self._open
        if current is None:
            if not in_backward():
                return
            # Reentrant checkpointing computes here what its backward goes through; of several passes it could be any.
            current = self._passes[0]
        if len(inputs) != 1 or not isinstance(inputs[0], Tensor) or (self._open is None and len(self._passes) > 1):
            on_output_gradient(output, lambda _: current.missed.add(use))
        else:
            current.attach(use, inputs[0], output)

    def _of_speakers(self) -> Tensor:
        device = self._target.parameters[0].parameter.device
        sums_KR = torch.zeros(self._target.speakers, self.sketch.width, device=device)
        for one in self._passes:
            sums_KR.index_add_(0, one.pieces.speaker_G.to(device, non_blocking=True), one.value(device))
        return sums_KR

    def _missed(self) -> frozenset[int]:
        """Parameters of whose gradient something was not told: at a use that does not line up, or beside the modules' forward."""
        seen = {use for one in self._passes for use in one.seen}
        partly = {use for one in self._passes for use in one.missed}
        found = {index for use in self._uses if use in partly or use not in seen for index in use.indices}
        if any(index in self.sketch.vectors for use in partly & seen for index in use.indices):
            found |= self.sketch.vectors
        return frozenset(found)

    def _covered(self) -> frozenset[int]:
        return frozenset(index for use in self._uses for index in use.indices) - self._missed()

    def _influence(self, total_R: Tensor) -> Tensor:
        """⟨M_i, M⟩/‖M‖² of each sequence; the gradient is the mean over the processes that share it."""
        total_R = total_R / (total_R.square().sum() * self._processes)
        parts = [self._of_sequences(one, one.value(total_R.device) @ total_R) for one in self._passes]
        return torch.cat(parts)

    def _squares(self, loss_scale: Tensor | float) -> Tensor | None:
        """‖M_i‖² of each sequence's part of the unscaled gradient; None where several roles speak in one."""
        if any(one.pieces.batch.is_mixed_within for one in self._passes):
            return None
        device, missed = self._target.parameters[0].parameter.device, self._missed()
        parts = [self._of_sequences(one, self.sketch.without(one.value(device), missed).square().sum(1)) for one in self._passes]
        return torch.cat(parts) / (loss_scale * self._processes) ** 2

    @property
    def _processes(self) -> int:
        return dist.get_world_size() if self._target.is_spread and dist.is_initialized() else 1

    @staticmethod
    def _of_sequences(one: SequenceSketch, influence_G: Tensor) -> Tensor:
        sequence_G = one.pieces.sequence_G
        known = sequence_G != NOBODY
        influence_N = influence_G.new_zeros(len(one.pieces.batch.speaker_N))
        return influence_N.index_add_(0, sequence_G[known].to(influence_G.device), influence_G[known.to(influence_G.device)])

    def _read_exact(self, sums: Tensor, loss_scale: Tensor | float) -> RoleGradReading | Unavailable | None:
        if self._exact is None or not self._is_exact:
            return None
        if not self._target.is_spread:
            return self._exact.conclude(self._exact.sums(), loss_scale)
        # Processes that began to measure at different steps would add exact sums to none.
        return self._exact.conclude(sums[:-1], loss_scale) if bool(sums[-1] == 1) else None
