"""The engine for sequences in which several roles speak: within the ordinary backward, one more for each of them."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.utils.hooks import RemovableHandle

from gradwatch.quantities.engines.clock import CLOCK
from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.engines.leaf_gradients import LeafGradients
from gradwatch.quantities.engines.output_gradient import is_transformed, on_output_gradient
from gradwatch.quantities.engines.output_layer import logits_of, output_layer
from gradwatch.quantities.engines.predicted_speakers import predicted_speakers
from gradwatch.quantities.engines.sketched_gradient import sketch_gradient_
from gradwatch.quantities.own_hook import REFUSALS, OwnHook
from gradwatch.quantities.parameter_sketch import WIDTH, ParameterSketch
from gradwatch.quantities.role_gradients import RoleGradReading, gram_of
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.sharding import is_dtensor
from gradwatch.quantities.unavailable import Unavailable

SPREAD = (
    "parameters are sharded (fully_shard, FSDP, tensor parallelism): another backward within the ordinary one would gather and "
    "reduce them again; let each sequence have one role, and choose another engine"
)
COMPILED = (
    "torch.compile was applied to the model: its backward may run only once; let each sequence have one role, or watch the model "
    "without compiling it"
)
NO_LOGITS = (
    "no gradient of logits was seen whose rows line up with the ids: no backward ran, or the loss is not computed from the output "
    "of {name} (give the engine the module that makes the logits)"
)
FAILED = (
    "a backward for one role failed ({error}): reentrant checkpointing allows none (set use_reentrant=False); else let each "
    "sequence have one role"
)
EXTRA = "one process could not measure this step's roles, so that what all measured does not add up to the gradient"


class Backwards:
    """The gradient of each speaker's part of the loss: what it adds where it is the speaker whose token is predicted.

    The gradient of the logits arrives once; for each speaker in the batch it is sent down alone, all other rows 0, and the
    gradients of the parameters are sketched and dropped, before the ordinary backward goes on from there, as it was. So a role's
    gradient takes in what flows through the tokens of others, which splitting by position does not. What a loss adds beside the
    logits belongs to the unassigned speaker, whose sketch is what is left of the ordinary gradient.

    Each speaker costs another backward, and a copy of the gradients while it runs; hooks that the model has on its gradients run
    for each. Errors are three standard deviations of the sketch. `output` is the module that makes the logits, where it is neither
    what `get_output_embeddings()` says nor the model itself.
    """

    name = "backwards"

    def __init__(self, target: Target, output: nn.Module | None = None, width: int = WIDTH) -> None:
        self._target = target
        self._output = output_layer(target.model) if output is None else output
        self._sketch = ParameterSketch([one.parameter.shape for one in target.parameters], width, target.seed)
        self._leaves = LeafGradients(target.parameters, self._on_gradient, self._on_failure)
        self._hook: RemovableHandle | None = None
        self._open: BatchRoles | None = None
        self._why = ""
        self._begin_step()

    def begin(self, batch: BatchRoles) -> None:
        """Measure what the forward passes up to `end` will add in their backward."""
        self._why = self._why or self._refused()
        if self._why:
            return
        self._leaves.attach()
        if self._hook is None:
            self._hook = self._output.register_forward_hook(OwnHook(self._on_forward), prepend=True)
        self._open = batch

    def end(self) -> None:
        """Measure no further forward pass."""
        self._open = None

    def sums(self) -> Tensor:
        """(K, m + 1): each speaker's sketch, and 1 where this process could not measure."""
        sums_KM = torch.zeros(self._target.speakers, self._sketch.width + 1, device=self._total_m.device)
        sums_KM[:, :-1] = self._sketch_Km
        sums_KM[-1, :-1] += self._total_m - self._sketch_Km.sum(0)
        sums_KM[:, -1] = float(bool(self._why))
        return sums_KM

    def conclude(self, sums: Tensor | None, loss_scale: Tensor | float = 1.0) -> RoleGradReading | Unavailable:
        """The Gram of the sketches."""
        why = self._why or ("" if self._measured else NO_LOGITS.format(name=type(self._output).__name__))
        if why:
            return Unavailable(why)
        sums = self.sums() if sums is None else sums
        if self._target.is_spread and bool(sums[:, -1].any()):
            return Unavailable(EXTRA)
        return RoleGradReading(
            self.name,
            gram_of(sums[:, :-1]) / loss_scale**2,
            frozenset(self._seen),
            norm_error=3 * self._sketch.norm_error,
            cosine_error=3 / sqrt(self._sketch.width),
        )

    def clear(self) -> None:
        """Forget everything measured, and begin the next step."""
        self.detach()
        self._begin_step()

    def detach(self) -> None:
        """Leave the model as it was."""
        self._leaves.detach()
        if self._hook is not None:
            self._hook.remove()
        self._hook = self._open = None
        self._edges.clear()

    def _begin_step(self) -> None:
        device = self._target.parameters[0].parameter.device
        self._sketch_Km = torch.zeros(self._target.speakers, self._sketch.width, device=device)
        self._total_m = torch.zeros(self._sketch.width, device=device)
        self._seen: set[int] = set()
        self._edges: list[GradientEdge | None] = []
        self._measured = False
        self._is_inside = False
        self._why = ""

    def _refused(self) -> str:
        if any(is_dtensor(one.parameter) or one.sharding.groups for one in self._target.parameters):
            return SPREAD
        compiled = any(
            hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) is not None
            for one in self._target.model.modules()
        )
        return COMPILED if compiled else ""

    def _on_gradient(self, index: int, gradient: Tensor) -> None:
        if not self._is_inside:
            self._seen.add(index)
            sketch_gradient_(self._total_m, self._sketch, index, self._target.parameters[index].parameter, gradient)

    def _on_failure(self, why: str) -> None:
        self._why = self._why or why

    def _on_forward(self, module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        batch, logits = self._open, logits_of(output)
        if batch is None or logits is None or is_transformed():
            return
        if logits.requires_grad and torch.is_grad_enabled():
            key = len(self._edges)
            self._edges.append(on_output_gradient(logits, lambda gradient: self._on_logits(key, batch, gradient)))

    def _on_logits(self, key: int, batch: BatchRoles, gradient: Tensor) -> None:
        edge = self._edges[key] if key < len(self._edges) else None
        if self._is_inside or self._why or edge is None:
            return
        speaker_M = predicted_speakers(batch, self._target.speakers, gradient.shape[:-1].numel())
        if speaker_M is None:
            return
        self._is_inside = True
        try:
            with CLOCK:
                self._send_down(edge, gradient, speaker_M)
            self._measured = True
        except REFUSALS as error:
            self._why = FAILED.format(error=str(error).partition("\n")[0])
        finally:
            self._is_inside = False

    def _send_down(self, edge: GradientEdge, gradient: Tensor, speaker_M: Tensor) -> None:
        """A backward for each named speaker; where a row is not its own the gradient is 0, whatever it was."""
        trained = [index for index, one in enumerate(self._target.parameters) if one.parameter.requires_grad]
        parameters = [self._target.parameters[index].parameter for index in trained]
        there = set(speaker_M.tolist()) - {self._target.speakers - 1}
        speaker_M1 = speaker_M.to(gradient.device, non_blocking=True).view(*gradient.shape[:-1], 1)
        for speaker in sorted(there):
            own = torch.where(speaker_M1 == speaker, gradient, 0)
            found = torch.autograd.grad([edge], parameters, [own], retain_graph=True, allow_unused=True)
            for index, parameter, one in zip(trained, parameters, found, strict=True):
                if one is not None:
                    sketch_gradient_(self._sketch_Km[speaker], self._sketch, index, parameter, one)
