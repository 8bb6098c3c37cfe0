"""Numbers as Plotly reads them fastest: the bytes of a float64 array. NaN is a gap there, as it must be."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable


def typed(values: Iterable[float]) -> dict[str, str]:
    """The values as a typed array in JSON."""
    column = array("d", values)
    if sys.byteorder == "big":
        column.byteswap()
    return {"dtype": "f8", "bdata": b64encode(column.tobytes()).decode()}
