"""The engine for micro-batches of one speaker each: what a backward leaves is that speaker's gradient, sketched as it comes."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from gradwatch.quantities.engines.clock import CLOCK
from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.engines.gradient_change import GradientChange
from gradwatch.quantities.engines.leaf_gradients import LeafGradients
from gradwatch.quantities.engines.sketched_gradient import sketch_gradient_
from gradwatch.quantities.parameter_sketch import WIDTH, ParameterSketch
from gradwatch.quantities.role_gradients import RoleGradReading, gram_of
from gradwatch.quantities.roles import BatchRoles
from gradwatch.quantities.sharding import is_dtensor
from gradwatch.quantities.unavailable import Unavailable

MIXED = (
    "a forward pass held sequences of several roles: this engine needs micro-batches of one role each; group batches by role, or "
    "choose another engine"
)
OUTSIDE = (
    "a backward ran after the roles of its forward pass were closed, so nothing tells whose gradient it left: call backward() "
    "before they are closed"
)
DELAYED = (
    "fully_shard reduced the gradients of micro-batches of several roles together: let each backward synchronize its gradients, or "
    "choose another engine"
)
DISAGREE = (
    "processes ran different roles in one backward and fully_shard added up their gradients, or one of them could not tell roles "
    "apart: give all processes micro-batches of the same role at the same time, or choose another engine"
)
NOTHING = "no gradient arrived while roles were open: no backward ran there, or it reached no parameter that is measured"


class Micro:
    """Sums the sketches of each speaker's gradients, which autograd hands to a parameter's hook once a backward.

    The hook sees the gradient of this backward and this process alone, before it is accumulated and before it is reduced: so
    accumulation, tied weights, checkpointing, torch.compile and DDP need nothing more. Of parameters that are DTensors (FSDP2,
    tensor parallelism) the change of `.grad` is sketched when roles are closed: every process must then have run the same speaker.
    A backward outside of any roles counts for the unassigned speaker.

    Errors are three standard deviations of the sketch: 3·√(1/2m) of a norm, 3/√m of a cosine. The memory is one sketch a speaker.
    On several processes `conclude` reads one number from the device, whether the others' sums can be used.
    """

    name = "micro"

    def __init__(self, target: Target, width: int = WIDTH) -> None:
        self._target = target
        self._sketch = ParameterSketch([one.parameter.shape for one in target.parameters], width, target.seed)
        self._leaves = LeafGradients(target.parameters, self._on_gradient, self._on_failure)
        spread = [index for index, one in enumerate(target.parameters) if is_dtensor(one.parameter)]
        self._change = GradientChange(self._sketch, target.parameters, spread) if spread else None
        self._step = _Step(target, self._sketch.width)

    def begin(self, batch: BatchRoles) -> None:
        """Count what backwards add up to `end` for the only speaker of the batch."""
        speaker = batch.only_speaker
        if speaker is None:
            self._step.why = self._step.why or MIXED
            return
        self._leaves.attach()
        self._step.open(speaker % self._target.speakers)
        if self._change is not None:
            with CLOCK:
                self._change.open(self._step.sketch_Km.device)

    def end(self) -> None:
        """Count what backwards add from now on for the unassigned speaker."""
        if self._step.speaker is None:
            return
        if self._change is not None:
            with CLOCK:
                self._step.take(self._change.close(), self._change.indices)
        self._step.close()

    def sums(self) -> Tensor:
        """(K, m + 2): each speaker's sketch, a number that tells the order of speakers, and 1 where nothing can be told."""
        told_K2 = torch.stack([self._step.order_K, torch.full_like(self._step.order_K, float(bool(self._step.lost)))], 1)
        return torch.cat([self._step.sketch_Km, told_K2.to(self._step.sketch_Km.device)], 1)

    def conclude(self, sums: Tensor | None, loss_scale: Tensor | float = 1.0) -> RoleGradReading | Unavailable:
        """The Gram of the sketches."""
        why = self._step.lost or ("" if self._step.seen else NOTHING)
        if why:
            return Unavailable(why)
        sums = self.sums() if sums is None else sums
        if self._target.is_spread and not self._agrees(sums):
            return Unavailable(DISAGREE)
        return RoleGradReading(
            self.name,
            gram_of(sums[:, : self._sketch.width]) / loss_scale**2,
            frozenset(self._step.seen),
            norm_error=3 * self._sketch.norm_error,
            cosine_error=3 / sqrt(self._sketch.width),
        )

    def clear(self) -> None:
        """Forget everything measured, and begin the next step."""
        self._leaves.detach()
        self._step = _Step(self._target, self._sketch.width)
        if self._change is not None:
            self._change.clear()

    def detach(self) -> None:
        """Leave the model as it was."""
        self._leaves.detach()

    def _on_gradient(self, index: int, gradient: Tensor) -> None:
        sketch_m = self._step.row_of(index)
        sketch_gradient_(sketch_m, self._sketch, index, self._target.parameters[index].parameter, gradient)

    def _on_failure(self, why: str) -> None:
        self._step.why = self._step.why or why

    def _agrees(self, sums: Tensor) -> bool:
        """Whether all processes could tell speakers apart, and ran the same ones in the same order where they had to."""
        told_K2 = sums[:, self._sketch.width :].cpu()
        able = bool(told_K2[:, 1].max() == 0)
        return able and (self._change is None or torch.allclose(told_K2[:, 0], self._step.order_K, rtol=1e-5))


class _Step:
    """What one step has seen so far: the speakers' sketches, and whether gradients can be told apart."""

    def __init__(self, target: Target, width: int) -> None:
        self.sketch_Km = torch.zeros(target.speakers, width, device=target.parameters[0].parameter.device)
        self.order_K = torch.zeros(target.speakers)
        self.seen: set[int] = set()
        self.speaker: int | None = None
        self.why = ""
        self._passes = 0
        self._arrived = self._unanswered = self._strayed = False
        self._waiting: set[int] = set()

    @property
    def lost(self) -> str:
        """Why gradients cannot be told apart: one came while no roles were open, and is missing where they were."""
        return self.why or (OUTSIDE if self._strayed and self._unanswered else "")

    def open(self, speaker: int) -> None:
        """A speaker's pass begins."""
        self.speaker = speaker
        self._passes += 1
        # Weights that differ from pass to pass: sums over passes then differ where the order of the speakers does.
        self.order_K[speaker] += self._passes * 7919 % 1021
        self._arrived = False

    def close(self) -> None:
        """The open pass is over."""
        self._unanswered |= not self._arrived
        self.speaker = None

    def row_of(self, index: int) -> Tensor:
        """The sketch to which a gradient of a parameter belongs that has just arrived."""
        self._arrived = True
        self._strayed |= self.speaker is None
        self.seen.add(index)
        return self.sketch_Km[-1 if self.speaker is None else self.speaker]

    def take(self, change_m: Tensor | None, indices: frozenset[int]) -> None:
        """The sketch of what the open pass changed in sharded gradients, None where it changed nothing."""
        assert self.speaker is not None
        if change_m is None:
            self._waiting.add(self.speaker)
            return
        if self._waiting - {self.speaker}:
            self.why = self.why or DELAYED
        self._waiting = set()
        self._arrived = True
        self.seen |= indices
        self.sketch_Km[self.speaker] += change_m
