"""What a framework is asked to train in a `HookContract`: a tiny model, its batches, and what shall go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

ROLES = ("solver", "verifier")


class BrokenTrainingError(Exception):
    """What a job raises where it shall fail; it has to leave the training as it is."""


class Net(nn.Module):
    """Weights from a fixed seed. `answers_oddly` makes its output something that no hook on modules knows."""

    def __init__(self, answers_oddly: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(5, 6), nn.Tanh())
            self.head = nn.Linear(6, 1)
        self.answers_oddly = answers_oddly

    def forward(self, x: Tensor) -> Any:
        y = self.head(self.body(x))
        return Answer(y) if self.answers_oddly else y


class Answer:
    """An output that is no tensor and no container, and whose attributes are not to be touched."""

    __slots__ = ("_y",)

    def __init__(self, y: Tensor) -> None:
        self._y = y

    def __iter__(self) -> Iterator[Tensor]:
        raise BrokenTrainingError("somebody iterates over the model's output")

    def __bool__(self) -> bool:
        raise BrokenTrainingError("somebody asks for the truth of the model's output")


def batch(index: int) -> Tensor:
    """The micro-batch of an index, (4, 5); each is different."""
    return torch.linspace(-1, 1, 20).view(4, 5).roll(index, 0) * (1 + index / 4)


def loss_of(output: Any) -> Tensor:
    """The loss of a `Net`'s output: a mean over rows."""
    y = output._y if isinstance(output, Answer) else output
    return (y - 1).square().mean()


@dataclass
class Job:
    """One training, of `steps` optimizer steps by plain SGD after `first_step` earlier ones.

    A step has `accumulation` micro-batches, whose losses are averaged. Step numbers in `fail_at`, `interrupt_at` and `nan_at` count
    from 0 over the whole training, resumes included. `clip` is the largest norm that the framework may let through. Without
    `is_watched` the same is trained and no hook is attached. The adapter calls `weigh` on each micro-batch's loss, in order.
    """

    run: Any
    steps: int = 3
    first_step: int = 0
    accumulation: int = 1
    loss_factor: float = 1.0
    clip: float | None = None
    fail_at: int | None = None
    interrupt_at: int | None = None
    nan_at: int | None = None
    has_roles: bool = False
    answers_oddly: bool = False
    is_watched: bool = True
    rank: int = 0
    ranks: int = 1
    learning_rate: float = 0.1
    seen: int = 0
    kept: list[tuple[str, Any]] = field(default_factory=list)

    def net(self) -> Net:
        """The model; equal weights on every rank."""
        return Net(self.answers_oddly)

    @property
    def micro_batches(self) -> range:
        """The numbers of this rank's micro-batches, from 0, as `batch` and `role` take them."""
        return range(self.first_step * self.accumulation, (self.first_step + self.steps) * self.accumulation)

    def batch(self, micro: int) -> Tensor:
        """The input of this rank's micro-batch: (4, 5)."""
        return batch(micro * self.ranks + self.rank)

    def role(self, micro: int) -> str:
        """Whose a micro-batch is: the roles take turns."""
        return ROLES[micro % len(ROLES)]

    def weigh(self, loss: Tensor) -> Tensor:
        """The loss to be trained on, before the framework divides it by `accumulation`; here the training fails, if it shall."""
        step = self.first_step + self.seen // self.accumulation
        self.seen += 1
        if step == self.fail_at:
            raise BrokenTrainingError(f"step {step}")
        if step == self.interrupt_at:
            raise KeyboardInterrupt
        return loss * (float("nan") if step == self.nan_at else self.loss_factor)

    def keep(self, **objects: Any) -> None:
        """Objects that a hook may touch (models, optimizers, trainers, patched classes): they are looked at after the training."""
        self.kept += objects.items()

    def footprint(self) -> dict[str, str]:
        """What is attached to the kept objects: each hook, attribute and method that does not come from their class."""
        return {place: what for name, one in self.kept for place, what in _places(name, one)}


def _places(name: str, one: Any) -> Iterable[tuple[str, str]]:
    yield from _attributes(name, vars(one))
    if isinstance(one, nn.Module):
        for path, module in one.named_modules():
            yield from _attributes(f"{name}.{path}", vars(module))
        for path, parameter in one.named_parameters():
            yield from _attributes(f"{name}.{path}", vars(parameter))
            yield from _attributes(f"{name}.{path}", {key: getattr(parameter, key) for key in PARAMETER_HOOKS})


PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _attributes(name: str, attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in attributes.items():
        if key.endswith("hooks") and isinstance(value, dict | None):
            yield f"{name}.{key}", f"{len(value or {})} hooks"
        elif callable(value) and not isinstance(value, nn.Module | Tensor):
            yield f"{name}.{key}", getattr(value, "__qualname__", type(value).__qualname__)
        else:
            yield f"{name}.{key}", type(value).__qualname__


def first_norm(job: Job, role: str = "") -> float:
    """‖g‖₂ of the job's first step, or of one role's part in it, by plain autograd over all ranks, in float64."""
    net = job.net().double()
    share = 1 / (job.accumulation * job.ranks)
    for micro in job.micro_batches[: job.accumulation]:
        for rank in range(job.ranks):
            if role in ("", job.role(micro)):
                loss = loss_of(net(batch(micro * job.ranks + rank).double())) * job.loss_factor * share
                loss.backward()
    return float(torch.stack([one.grad.norm() for one in net.parameters() if one.grad is not None]).norm())
