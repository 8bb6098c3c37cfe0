"""Request bodies: read within a limit, unpacked within a limit, decoded by what they are."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import zstandard
from starlette.requests import Request

from gradwatch.collector.room import Hold, Room
from gradwatch.errors import RefusedError
from gradwatch.wire import JSON, MSGPACK, Batch, BesidePoints

MOST_SENT = 32 * 2**20
MOST_UNPACKED = 256 * 2**20
MOST_SILENCE = 30.0
INLINE_BYTES = 64 * 1024
"""Up to here a body is decoded on the event loop: handing it to a thread takes longer."""

PART_BYTES = 2**20

Decoded = TypeVar("Decoded")


class Limits(NamedTuple):
    """Bytes that a body may have as it is sent, and when it is unpacked; seconds without any of it."""

    sent: int = MOST_SENT
    unpacked: int = MOST_UNPACKED
    silence: float = MOST_SILENCE


LIMITS = Limits()


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


def content_type(request: Request) -> str:
    """JSON or MSGPACK; RefusedError 415 for anything else. A body that does not say what it is counts as JSON."""
    said = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    # The form is what curl --data says where nobody says anything; a page of another site may send it, but never without Origin.
    if said in (JSON, "application/x-www-form-urlencoded"):
        return JSON
    if said in (MSGPACK, "application/x-msgpack", "application/vnd.msgpack"):
        return MSGPACK
    raise RefusedError(f"Content-Type {said[:100]!r} is not known here: send {JSON} or {MSGPACK}", 415)


async def received(request: Request, limits: Limits, room: Room, decode: Callable[[bytes], Decoded]) -> Decoded:
    """The decoded body. RefusedError 413 where it is too large, UnavailableError where the collector has no room for it now."""
    unpack = _unpacker(request)
    with Hold(room) as hold:
        hold.reach(_announced(request, limits))
        body = await _read(request, limits, hold)
        if unpack is None and len(body) <= INLINE_BYTES:
            return decode(body)
        return await asyncio.to_thread(_decode, body, unpack, limits, hold, decode)


def _announced(request: Request, limits: Limits) -> int:
    said = request.headers.get("content-length", "0")
    count = int(said) if said.isdigit() else 0
    if count > limits.sent:
        raise _too_large("the body", limits.sent)
    return count


async def _read(request: Request, limits: Limits, hold: Hold) -> bytes:
    """The body as it comes. A sender that has gone silent, its machine perhaps lost, must not hold its room for ever."""
    parts, count, clock = [], 0, asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(limits.silence) as patience:
            async for part in request.stream():
                count += len(part)
                if count > limits.sent:
                    raise _too_large("the body", limits.sent)
                hold.reach(count)
                parts.append(part)
                patience.reschedule(clock() + limits.silence)
    except TimeoutError as error:
        raise RefusedError(f"nothing came for {limits.silence:g} seconds in the midst of the body: send it again", 408) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


Unpacker = Callable[[bytes], _Reader]


def _unpacker(request: Request) -> Unpacker | None:
    said = request.headers.get("content-encoding", "identity").strip().lower()
    if said in ("identity", ""):
        return None
    if said not in _UNPACKERS:
        raise RefusedError(f"Content-Encoding {said[:100]!r} is not known here: send {' or '.join(_UNPACKERS)}, or nothing", 415)
    return _UNPACKERS[said]


def _gzip(body: bytes) -> _Reader:
    return gzip.GzipFile(fileobj=BytesIO(body))


def _zstd(body: bytes) -> _Reader:
    # A frame may ask for a window of gigabytes.
    return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(body, read_across_frames=True)


_UNPACKERS: dict[str, Unpacker] = {"gzip": _gzip, "zstd": _zstd}


def _decode(body: bytes, unpacker: Unpacker | None, limits: Limits, hold: Hold, decode: Callable[[bytes], Decoded]) -> Decoded:
    return decode(body if unpacker is None else _unpacked(body, unpacker, limits, hold))


def _unpacked(body: bytes, unpacker: Unpacker, limits: Limits, hold: Hold) -> bytes:
    parts, count, reader = [], 0, unpacker(body)
    try:
        while part := reader.read(PART_BYTES):
            count += len(part)
            if count > limits.unpacked:
                raise _too_large("the unpacked body", limits.unpacked)
            hold.reach(len(body) + count)
            parts.append(part)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise RefusedError(f"the body is not what Content-Encoding says: {error}") from error
    return b"".join(parts)


def from_msgpack(body: bytes, kind: type[Decoded]) -> Decoded:
    """The body as a record of this type; RefusedError says where it is wrong."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise RefusedError(f"the body does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"the body is no msgpack: {error}") from error


def without_points(name: str, sent: BesidePoints) -> Batch:
    """The batch of that id, its points still to come."""
    return Batch(id=name, **{field: getattr(sent, field) for field in BesidePoints.__struct_fields__})


def _too_large(what: str, limit: int) -> RefusedError:
    return RefusedError(f"{what} has more than {limit:,} bytes: send smaller batches", 413)
