"""Memory for what is used at once and then forgotten: pages that were just mapped cost more than the arithmetic on them."""

from __future__ import annotations

import threading

from torch import Tensor

_held = threading.local()


def scratch(like: Tensor, size: int) -> Tensor:
    """`size` entries of a tensor's dtype on its device, valid until this thread's next call. On a device, where memory is kept by
    torch itself, they are new ones.
    """
    if like.device.type != "cpu":
        return like.new_empty(size)
    known: Tensor | None = getattr(_held, "memory", None)
    if known is None or known.dtype != like.dtype or len(known) < size:
        known = _held.memory = like.new_empty(size)
    return known[:size]
