"""Regions of activation checkpointing: what they compute again in the backward pass has to save what it saved before."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from gradwatch.quantities.engines.output_gradient import in_backward


class Call(NamedTuple):
    """Whether a tap has to stand at a module's call, and whether the call only repeats an earlier one, which has its tap."""

    stands: bool
    repeats: bool = False


class Regions:
    """The regions that ran with taps and whose graphs are alive.

    Taps come and go between steps, and a region may run before one and be computed again after it: torch raises into the backward
    where a region then saves other tensors. So a repeated call has a tap where the first one had. Regions are known by the frames
    in the hooks that `torch.utils.checkpoint` sets for saved tensors (use_reentrant=False); of the other kind both passes stand
    for themselves.
    """

    def __init__(self) -> None:
        self._tapped: weakref.WeakSet[Any] = weakref.WeakSet()

    def call(self, is_armed: bool) -> Call:
        """What to do at a module's call; `is_armed`: taps stand in this step."""
        if not is_armed and not (self._tapped and in_backward()):
            return Call(False)
        frames = list(_frames())
        repeated = [frame for frame, repeats in frames if repeats]
        stands = repeated[0] in self._tapped if repeated else is_armed
        if stands:
            self._tapped.update(frame for frame, repeats in frames if not repeats)
        return Call(stands, bool(repeated))

    def when_gone(self, then: Callable[[], None]) -> None:
        """Call `then` as soon as no region is left that could be computed again: mostly at once."""
        left = list(self._tapped)
        if not left:
            then()
            return
        count = len(left)

        def gone() -> None:
            nonlocal count
            count -= 1
            if not count:
                then()

        for frame in left:
            weakref.finalize(frame, gone).atexit = False


def _frames() -> Iterator[tuple[Any, bool]]:
    """The regions that a call is in, the innermost first, and whether it is computed again there."""
    hooks = []
    try:
        while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            hooks.append(top)
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
    for pack, _ in hooks:
        held = _closure(pack)
        if isinstance(held.get("target_frame_ref"), weakref.ref):
            yield held["target_frame_ref"](), True
        elif "_checkpoint_hook" in getattr(pack, "__qualname__", "") and "frame" in held:
            yield held["frame"], False


def _closure(pack: Any) -> dict[str, Any]:
    function = getattr(pack, "__wrapped__", pack)  # torch._dynamo.disable wraps one of them
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return dict(zip(names, (cell.cell_contents for cell in getattr(function, "__closure__", None) or ()), strict=False))
