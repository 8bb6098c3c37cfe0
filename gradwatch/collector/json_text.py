"""JSON with numbers that JSON does not have: `"NaN"`, `"Infinity"` and `"-Infinity"`; bare NaN is read as well."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

from gradwatch.errors import RefusedError

Read = TypeVar("Read")


def to_json(answer: object) -> bytes:
    """The record or builtin value as JSON; a float that is not finite becomes its name."""
    return msgspec.json.encode(named(msgspec.to_builtins(answer, str_keys=True)))


def from_json(body: bytes, kind: type[Read]) -> Read:
    """The body as a record of this type; RefusedError says where it is wrong. Names stand for numbers, `NaN` may be bare."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Python's json.dumps writes bare NaN and Infinity, which the fast reader refuses.
        if b"NaN" in body or b"Infinity" in body:
            return _from_python(body, kind)
        raise RefusedError(f"the body is no JSON: {error}") from error
    except RecursionError as error:
        raise RefusedError("the body is nested too deeply") from error


def _from_python(body: bytes, kind: type[Read]) -> Read:
    try:
        read = json.loads(body)
        # Python reads text that UTF-8 cannot hold, and no store can keep; nothing else is wanted of this.
        msgspec.json.encode(read)
        return msgspec.convert(read, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(f"the body does not fit: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is no JSON: {error}") from error


def named(value: Any) -> Any:
    """The value with names in place of floats that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if isinstance(value, list | tuple):
        return [named(one) for one in value]
    if isinstance(value, dict):
        return {key: named(one) for key, one in value.items()}
    return value


def name_of(value: float) -> str:
    """What a number that is not finite is called."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
