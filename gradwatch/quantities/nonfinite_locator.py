"""Where NaN and infinity come from: the first module whose output, or whose output's gradient, is not finite, in the same step."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradwatch.quantities.call_extremes import CallExtremes
from gradwatch.quantities.located import LocatorReading
from gradwatch.quantities.module_names import clean_names
from gradwatch.quantities.nonfinite_tensors import local_values, nonfinite_flags
from gradwatch.quantities.own_hook import OwnHook
from gradwatch.quantities.parameter_groups import Member

READABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MODEL = "(model)"
LARGE = 1 << 24  # entries, of which one a row is read: logits, mostly
HELD = 64


class _Seen(NamedTuple):
    """A tensor that a module returned, not kept alive, and how often it had been changed in place."""

    module: int
    tensor: ref[Tensor]
    version: int


class _Held(NamedTuple):
    """The same, kept until its block is through."""

    module: int
    tensor: Tensor
    version: int


class NonfiniteLocator:
    """Looks, while armed, at the outputs of modules and at their gradients, in the forward passes that are trained on.

    Reading every output costs 6 to 14 % of a step on a CPU. What is read of each pass is what the model returns, what blocks of
    modules compute themselves (a sum with the residual stream), and the gradients of these and of the first module's output. From
    there,
    - the output: on the CPU, the last modules that ran are looked through at once where a block's output is not finite; for that,
      the outputs since the last block, at most 64, are held until it is through. On other devices, the block is named.
    - the gradient: the parameters' own gradients tell the module.
    `arm(whole=True)` reads everything, and is meant for the steps after one that was not finite.

    Nothing is changed, and the host never waits for a device. What is compiled is not seen, whether hooks came first or not.
    Outputs may be tensors, or tuples, lists and mappings of them. Forward passes without gradients are left alone. A value that is
    infinite by design, such as a mask that a block returns, is named too: ask where the gradient's norm is not finite. Nothing is
    raised into a pass: what torch refuses to read ends the search in that step, and `failure` tells.
    """

    def __init__(self, model: nn.Module, members: Sequence[Member], rank: int = 0) -> None:
        modules = list(model.modules())
        self._members = tuple(members)
        self._rank = rank
        self._names = _module_names(model)
        self._owners = _owners(modules)
        self._blocks = _blocks(modules)
        self._armed = self._whole = self._inside = False
        self.failure = ""
        self._forward, self._backward = CallExtremes(len(modules)), CallExtremes(len(modules))
        self._held: deque[_Held] = deque(maxlen=HELD)
        self.clear()
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(OwnHook(self._enter)),
            *(one.register_forward_hook(OwnHook(partial(self._output, number))) for number, one in enumerate(modules)),
            model.register_forward_hook(OwnHook(self._leave)),
        ]

    def arm(self, whole: bool = False) -> None:
        """Look at the passes from now on; `whole`: at every entry that every module returns."""
        self._armed, self._whole = True, whole

    def disarm(self) -> None:
        """Look at nothing, and forget what was seen."""
        self._armed = False
        self.clear()

    @torch.no_grad()
    def reading(self, norm: Tensor | None = None) -> LocatorReading:
        """What was found since `clear`. To be called after each backward, before clipping spreads a NaN over every gradient.

        Parameters are looked at here: those of `members` that require a gradient, the part of them that this process holds. `norm`
        is that of the whole gradient where it was measured: on the CPU, where it is finite, they are not read again.
        """
        trained = [one for one in self._members if one.parameter.requires_grad]
        home = trained[0].parameter.device if trained else torch.device("cpu")
        fine = norm is not None and norm.is_cpu and bool(norm.isfinite())
        return LocatorReading(
            torch.stack([self._forward.first(home), self._backward.first(home)]),
            torch.full((2,), float(self._rank), device=home),
            nonfinite_flags([None if fine else local_values(one.parameter.grad) for one in trained], home),
            nonfinite_flags([None if fine else local_values(one.parameter) for one in trained], home),
            tuple(one.name for one in trained),
            self._names,
            tuple(self._owners.get(id(one.parameter)) for one in trained),
            self._order,
        )

    def detach(self) -> None:
        """Leave the model as it was."""
        self.disarm()
        for one in self._handles:
            one.remove()

    def clear(self) -> None:
        """Forget what was seen, and begin the next step."""
        self._forward.clear()
        self._backward.clear()
        self._order: dict[int, int] = {}
        self._held.clear()
        self._last: list[_Seen] = []
        self._calls = 0
        self._begun = self._found = self._ended = False

    def _enter(self, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self._inside, self._begun = torch.is_grad_enabled(), False

    def _leave(self, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self._inside = False
            self._held.clear()

    def _output(self, number: int, _module: nn.Module, _inputs: object, output: object) -> None:
        # Traced code must see nothing of this object: it would be guarded on, and traced again.
        # Reentrant checkpointing runs the first forward pass without gradients, inside the model's.
        if torch.compiler.is_compiling() or not self._armed or self._ended or not (self._inside or torch.is_grad_enabled()):
            return
        try:
            self._look(number, [one for one in _tensors(output) if not one.is_inference()])
        except RuntimeError as error:
            self._fail(error)

    def _look(self, number: int, tensors: list[Tensor]) -> None:
        makers = [self._maker(number, one) for one in tensors]
        made = [(maker, one) for maker, one in zip(makers, tensors, strict=True) if number in (maker, 0)]
        read = made if self._whole or number in self._blocks else []
        self._last = [_Seen(maker, ref(one), one._version) for maker, one in zip(makers, tensors, strict=True)]
        if not _in_backward():
            self._calls += 1
            self._order[number] = self._calls
            for maker, one in read:
                self._read(maker, one)
            self._hold(made, is_block=bool(read))
        begins = not self._begun and any(one.requires_grad for one in tensors)
        self._begun |= begins
        for maker, one in made if begins else read:
            # A hook on a leaf would stay for ever.
            if one.requires_grad and one.grad_fn is not None:
                _on_gradient(one, partial(self._gradient, maker))

    def _maker(self, number: int, tensor: Tensor) -> int:
        """The module that made a tensor: the one just before, where this one only hands it on."""
        return next((seen.module for seen in self._last if seen.tensor() is tensor and seen.version == tensor._version), number)

    def _read(self, number: int, tensor: Tensor) -> None:
        extremes = _extremes(tensor)
        if extremes is None:
            return
        if not self._found and extremes[0].is_cpu and not _is_finite(extremes):
            self._found = True
            self._trace()
        self._forward.add(number, extremes)

    def _trace(self) -> None:
        """Where a block's output is known here and now not to be finite, look for the module in it."""
        for held in self._held:
            extremes = _extremes(held.tensor) if held.tensor._version == held.version else None
            if extremes is not None and not _is_finite(extremes):
                self._forward.add(held.module, extremes)
                return

    def _hold(self, made: list[tuple[int, Tensor]], is_block: bool) -> None:
        if is_block:
            self._held.clear()
        elif not self._found:
            small = (one for one in made if one[1].is_cpu and one[1].numel() <= LARGE)
            self._held.extend(_Held(maker, one, one._version) for maker, one in small)

    def _gradient(self, number: int, gradient: Tensor) -> None:
        try:
            extremes = _extremes(gradient) if self._armed and not self._ended else None
        except RuntimeError as error:
            self._fail(error)
        else:
            if extremes is not None:
                self._backward.add(number, extremes)

    def _fail(self, error: RuntimeError) -> None:
        self.failure = f"looking for NaN and infinity was refused: {error}"
        self.clear()
        self._ended = True


def _extremes(tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """The smallest and the largest value; of a tensor that is spread over processes, of the part that is here.

    Of a large one, one entry a row: the matrix product or norm that made it spread over the row what was not finite.
    """
    values = local_values(tensor)
    if values is None or values.dtype not in READABLE or not values.numel():
        return None
    return torch.aminmax(values if values.numel() <= LARGE or values.dim() < 2 else values[..., 0])


def _is_finite(extremes: tuple[Tensor, Tensor]) -> bool:
    return isfinite(extremes[0].item()) and isfinite(extremes[1].item())


def _on_gradient(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
    tensor.register_hook(hook)  # type: ignore[no-untyped-call]


def _module_names(model: nn.Module) -> tuple[str, ...]:
    """The clean name of each module."""
    modules = dict(model.named_modules())
    below = {name: f"{name}.{child}".lstrip(".") for name, one in modules.items() for child, _ in one.named_children()}
    every = (*modules, *below.values(), *(name for name, _ in model.named_parameters(remove_duplicate=False)))
    clean = clean_names(filter(None, every))
    # The last component is never taken out: of a module that holds others, the name is what stands before theirs.
    named = (clean[below[name]].rpartition(".")[0] if name in below else clean.get(name) for name in modules)
    return tuple(name or MODEL for name in named)


def _blocks(modules: Sequence[nn.Module]) -> set[int]:
    """The model, and the layers that follow each other in it: modules of several, in a list. Without such lists, all of several."""
    several = {id(one) for one in modules if any(True for _ in one.children())}
    listed = {id(child) for one in modules if isinstance(one, nn.ModuleList | nn.Sequential) for child in one.children()}
    return {0, *(number for number, one in enumerate(modules) if id(one) in (several & listed or several))}


def _owners(modules: Sequence[nn.Module]) -> dict[int, int]:
    """The module of each parameter, by the parameter's `id`; without those that several modules share."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number, module in enumerate(modules):
        for one in module.parameters(recurse=False):
            found[id(one)].append(number)
    return {one: owners[0] for one, owners in found.items() if len(owners) == 1}


def _tensors(output: object) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.dtype in READABLE:
            yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from _tensors(one)
    elif isinstance(output, tuple | list):
        for one in output:
            yield from _tensors(one)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
