"""The end of each backward pass: the only moment at which gradients are whole, reduced, and not yet clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils.hooks import RemovableHandle

NONE = -1  # what torch calls the backward outside of one


class BackwardEnd:
    """Calls `read` at the end of every backward that added to a gradient of `parameters`.

    No hook of torch's stands between the last gradient and `clip_grad_norm_`. The one that does the work here is queued in the
    autograd engine, and from there once more: a callback that is queued once runs before DDP has reduced its last bucket.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], read: Callable[[], None]) -> None:
        self._read = read
        self._backward = NONE
        self._parameters = tuple(parameters)
        self._handles: dict[int, RemovableHandle] = {}
        self.attach()

    def attach(self) -> bool:
        """Hook the parameters that train by now; whether a gradient was there already of one that was not hooked."""
        found = [(index, one) for index, one in enumerate(self._parameters) if one.requires_grad and index not in self._handles]
        for index, one in found:
            self._handles[index] = one.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
        return any(one.grad is not None for _, one in found)

    def detach(self) -> None:
        """Leave the parameters as they were."""
        for handle in self._handles.values():
            handle.remove()
        self._handles = {}

    def _on_gradient(self, _: Tensor) -> None:
        # Each backward has a number. One that an error ended never comes to its end, so that a flag would stay up for ever.
        backward = torch._C._current_graph_task_id()
        if backward == self._backward != NONE:
            return
        self._backward = backward
        try:
            _queue(lambda: _queue(self._end))
        except RuntimeError:  # outside of a backward pass: FSDP may call the hooks of its shards there
            self._end()

    def _end(self) -> None:
        self._backward = NONE
        self._read()


def _queue(callback: Callable[[], None]) -> None:
    Variable._execution_engine.queue_callback(callback)
