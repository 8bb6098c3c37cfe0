"""JSON as the metadata database keeps it: in Python's dialect, which has NaN and infinities."""

from __future__ import annotations

import json

import msgspec


def to_json(value: object) -> str:
    """The value as text; what JSON does not know becomes its `str`."""
    # msgspec's own JSON writes NaN as null.
    return json.dumps(msgspec.to_builtins(value, enc_hook=str, str_keys=True))
