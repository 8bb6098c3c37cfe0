"""Copies of what a caller logs, made in the caller's thread without waiting for a device.

A device tensor is cloned on its device and an event is recorded behind it, so that the background thread knows when it may read;
arrays and lists are copied. Reading, converting and every reduction come later.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

MOST_DEPTH = 32
A_SCALAR = 16
"""Numbers in an array that take the memory of one in a mapping, with its key and its object."""
SCALARS = frozenset((float, int, bool))
SEQUENCES = (list, tuple, range, array, deque)


class Unusable(NamedTuple):
    """A value that is no number, and why; it is left out, and said once."""

    why: str


Snapshot = tuple[dict[str, Any], tuple[Any, ...], int]
"""Flat keys to copied values, device events after which the copies may be read, and how many numbers there are."""


def snapshot(metrics: Mapping[Any, Any]) -> Snapshot:
    """Copy what a call gave: nested mappings become keys with slashes."""
    values = dict(metrics)
    for value in values.values():
        if type(value) is not float and type(value) not in SCALARS:
            return _copy(values)
    return values, (), len(values)


def _copy(values: dict[Any, Any]) -> Snapshot:
    copies = _Copies()
    if any(map(_is_nested, values.items())):
        flat: dict[str, Any] = {}
        _flatten("", values, flat, 0)
        values = flat
    for key, value in values.items():
        if type(value) not in SCALARS:
            values[key] = _safe_copy(copies, value)
    return values, copies.events(), len(values) + copies.weight


def _safe_copy(copies: _Copies, value: Any) -> Any:
    try:
        return copies.of(value)
    except Exception as error:  # noqa: BLE001 - the client boundary: one bad value does not take the others with it
        return Unusable(f"a {type(value).__name__} that cannot be copied ({type(error).__name__})")


def _is_nested(item: tuple[Any, Any]) -> bool:
    return type(item[0]) is not str or isinstance(item[1], Mapping)


class _Copies:
    """Copies of one call, with the CUDA devices that they are on."""

    def __init__(self) -> None:
        self.weight = 0
        self._torch = sys.modules.get("torch")
        self._numpy = sys.modules.get("numpy")
        self._devices: set[Any] = set()

    def of(self, value: Any) -> Any:
        """A copy that nobody else changes."""
        if type(value) in SCALARS or value is None or type(value) is Unusable:
            return value
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        if self._numpy is not None and isinstance(value, (self._numpy.ndarray, self._numpy.generic)):
            self.weight += value.size // A_SCALAR
            return value.copy()
        if isinstance(value, SEQUENCES):
            return self._sequence(value)
        return self._other(value)

    def events(self) -> tuple[Any, ...]:
        """One event a device, behind the copies on the caller's stream there."""
        return tuple(self._event(device) for device in self._devices)

    def _event(self, device: Any) -> Any:
        cuda = self._torch.cuda  # type: ignore[union-attr]
        # Blocking: the thread that waits for it sleeps instead of spinning on a core.
        event = cuda.Event(blocking=True)
        event.record(cuda.current_stream(device))
        return event

    def _tensor(self, tensor: Any) -> Any:
        why = self._not_plain(tensor)
        if why:
            return Unusable(why)
        self.weight += tensor.numel() // A_SCALAR
        if tensor.is_cuda:
            self._devices.add(tensor.device)
        return tensor.detach().clone()

    def _not_plain(self, tensor: Any) -> str:
        torch: Any = self._torch
        if hasattr(tensor, "full_tensor"):
            return "a sharded tensor, whose values other ranks hold: log tensor.full_tensor(), computed on every rank"
        if tensor.is_meta:
            return "a tensor on the meta device, which has no values"
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_complex():
            return f"a tensor of dtype {tensor.dtype} and layout {tensor.layout}: log dense real numbers, such as tensor.to_dense()"
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return "a tensor inside a CUDA graph's capture: log it outside of the graph"
        return ""

    def _sequence(self, values: Any) -> Any:
        if SCALARS.issuperset(map(type, values)):
            self.weight += len(values) // A_SCALAR
            return list(values)
        return [self.of(value) for value in values]

    def _other(self, value: Any) -> Any:
        if isinstance(value, (str, bytes, type)):
            return Unusable(f"a value of type {type(value).__name__}, which is no number")
        if self._numpy is not None and hasattr(value, "__array__"):
            # jax arrays never change and copying one would wait for its device.
            return value if type(value).__module__.startswith("jax") else self.of(self._numpy.array(value))
        if hasattr(value, "__float__"):
            return number(value)
        return Unusable(f"a value of type {type(value).__name__}, which is no number")


def number(value: Any) -> float:
    """The nearest float; a number beyond the range of floats becomes an infinity."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _flatten(prefix: str, values: Mapping[Any, Any], flat: dict[str, Any], depth: int) -> None:
    for key, value in values.items():
        name = f"{prefix}/{key}" if prefix else str(key)
        if not isinstance(value, Mapping):
            flat[name] = value
        elif depth < MOST_DEPTH:
            _flatten(name, value, flat, depth + 1)
        else:
            flat[name] = Unusable(f"nested more than {MOST_DEPTH} deep")
