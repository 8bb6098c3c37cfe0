"""Numbers of what was logged, read in the background thread: a float, or the moments of many."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from gradwatch.client.snapshot import SCALARS, Unusable, number

REAL_KINDS = "biuf"
STATS = ("mean", "std", "min", "max", "count", "nonfinite")


@dataclass(frozen=True, slots=True)
class Moments:
    """Of many numbers: `mean`, `std` (population, ddof=0), `min` and `max` over the finite ones, NaN where none is finite.

    `count` is the number of all, `nonfinite` that of NaN, infinities and None among them.
    """

    mean: float
    std: float
    min: float
    max: float
    count: float
    nonfinite: float

    def items(self) -> Iterator[tuple[str, float]]:
        """Every statistic that there is; of no number at all there is only the count."""
        for name in STATS if self.count else ("count", "nonfinite"):
            yield name, float(getattr(self, name))


def wait(events: tuple[Any, ...]) -> None:
    """Until the device has made the copies; after a failure of the device, reading them says why."""
    for event in events:
        with suppress(RuntimeError):
            event.synchronize()


def read(value: Any) -> float | Moments | Unusable | None:
    """The number or the moments of a copied value; None stands for nothing logged."""
    try:
        return _read(value)
    except Exception as error:  # noqa: BLE001 - the client boundary: a user's type may raise anything
        return Unusable(f"a {type(value).__name__} that cannot be read ({type(error).__name__}: {error})")


def _read(value: Any) -> float | Moments | Unusable | None:
    if type(value) in SCALARS:
        return number(value)
    if value is None or isinstance(value, Unusable):
        return value
    if isinstance(value, list):
        flat = _flatten(value)
        return flat if isinstance(flat, Unusable) else moments(flat)
    return _of_array(_host(value))


def read_number(value: Any) -> float | None:
    """The number of a copied value, None where it is not exactly one."""
    got = read(value)
    if isinstance(got, Moments):
        return got.mean if got.count == 1 and not got.nonfinite else None
    return got if isinstance(got, float) else None


def moments(values: list[float]) -> Moments:
    """The moments of floats, in plain Python: exact sums, no overflow."""
    finite = [one for one in values if math.isfinite(one)]
    nonfinite = len(values) - len(finite)
    if not finite:
        return Moments(math.nan, math.nan, math.nan, math.nan, len(values), nonfinite)
    low, high = min(finite), max(finite)
    scale = _scale(low, high)
    unit = [one / scale for one in finite]
    mean = math.fsum(unit) / len(unit)
    std = math.sqrt(math.fsum((one - mean) ** 2 for one in unit) / len(unit))
    return Moments(mean * scale, std * scale, low, high, len(values), nonfinite)


def array_moments(values: Any) -> Moments:
    """The same of a numpy array of float64."""
    numpy: Any = sys.modules["numpy"]
    finite = values[numpy.isfinite(values)]
    count, nonfinite = int(values.size), int(values.size - finite.size)
    if not finite.size:
        return Moments(math.nan, math.nan, math.nan, math.nan, count, nonfinite)
    low, high = float(finite.min()), float(finite.max())
    scale = _scale(low, high)
    finite /= scale
    mean = float(finite.mean())
    finite -= mean
    finite *= finite
    std = math.sqrt(float(finite.mean()))
    return Moments(mean * scale, std * scale, low, high, count, nonfinite)


def _scale(low: float, high: float) -> float:
    """A power of two near the largest magnitude: dividing by it is exact, and no square overflows or vanishes."""
    exponent = math.frexp(max(abs(low), abs(high)))[1]
    return 2.0 ** max(min(exponent, 1023), -1000)


def _flatten(value: Any) -> list[float] | Unusable:
    """Every number below a list, NaN for None."""
    if value is None:
        return [math.nan]
    if isinstance(value, Unusable):
        return value
    if not isinstance(value, list):
        return [number(value)] if type(value) in SCALARS else _numbers(_host(value))
    flat: list[float] = []
    for one in value:
        got = _flatten(one)
        if isinstance(got, Unusable):
            return got
        flat += got
    return flat


def _numbers(array: Any) -> list[float] | Unusable:
    return array if isinstance(array, Unusable) else [float(one) for one in array.reshape(-1).tolist()]


def _of_array(array: Any) -> float | Moments | Unusable:
    if isinstance(array, Unusable):
        return array
    if array.ndim == 0:
        return float(array.item())
    if "numpy" in sys.modules:
        return array_moments(array.reshape(-1))
    return moments(array.reshape(-1).tolist())


def _host(value: Any) -> Any:
    """A float64 numpy array in this machine's memory (a torch tensor where numpy is missing), or why there is none."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        copied = _copied(value).double()
        return copied if numpy is None else copied.numpy()
    if numpy is None:
        return Unusable(f"a value of type {type(value).__name__}, which needs numpy")
    if isinstance(value, numpy.ma.MaskedArray):
        value = value.compressed()
    array = numpy.asarray(value)
    if array.dtype.kind not in REAL_KINDS:
        return Unusable(f"an array of dtype {array.dtype}: log real numbers")
    return array.astype(numpy.float64)


def _copied(tensor: Any) -> Any:
    """The tensor in this machine's memory. A stream of our own keeps the copy from waiting for the training's kernels."""
    if not tensor.is_cuda:
        return tensor.cpu()
    torch: Any = sys.modules["torch"]
    with torch.cuda.stream(_side_stream(tensor.device)):
        return tensor.cpu()


@cache
def _side_stream(device: Any) -> Any:
    torch: Any = sys.modules["torch"]
    return torch.cuda.Stream(device)
