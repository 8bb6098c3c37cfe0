"""Reads TensorBoard event files: length-framed, checksummed protocol buffers.

The frames are read here and only the messages inside through the `tensorboard` package: its own loader allocates
whatever a damaged length claims, needs a path and so no gzip, and stops at the first damaged record.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gradwatch.importers.base import Row
from gradwatch.importers.source import Source

HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
MAGIC = b"brain.Event:"
MAX_RECORD = 64 * 2**20
"""Bytes: a longer record is passed over; scalars have a hundred, images a few million."""
MAX_CHECKED = 16 * 1024
"""Bytes of the longest record whose checksum is compared: it costs a microsecond for every five bytes."""


def crc_table() -> tuple[int, ...]:
    """The byte table of CRC-32C (Castagnoli, reflected polynomial 0x82F63B78)."""
    table = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 if rest & 1 else 0)
        table.append(rest)
    return tuple(table)


CRC_TABLE = crc_table()


def masked_crc(content: bytes) -> int:
    """The checksum as TFRecord files store it: CRC-32C rotated right by 15 bits plus a constant."""
    rest = 0xFFFFFFFF
    for byte in content:
        rest = CRC_TABLE[(rest ^ byte) & 0xFF] ^ (rest >> 8)
    rest ^= 0xFFFFFFFF
    return (((rest >> 15) | (rest << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class TensorboardEvents:
    """One row a scalar, with its tag as `axis`, since each tag may count other steps than the rest."""

    format = "tfevents"

    def recognises(self, head: bytes) -> bool:
        """A first record that names the file's version, or whose length fits its checksum."""
        if len(head) < HEADER.size:
            return False
        length, checksum = HEADER.unpack_from(head)
        return MAGIC in head[: HEADER.size + 64] or (0 < length < MAX_RECORD and masked_crc(head[:8]) == checksum)

    def rows(self, source: Source) -> Iterator[Row]:
        """All scalars in file order; text, images and histograms are passed over."""
        parse, errors = _event_parser()
        foreign: set[str] = set()
        for record in records(source):
            try:
                event = parse(record)
            except errors:
                source.warn("a record is no TensorBoard event and was skipped")
                continue
            for value in event.summary.value:
                scalar = _scalar(value, foreign)
                if scalar is not None:
                    yield Row({value.tag: scalar}, step=event.step, wall_time=event.wall_time, axis=value.tag)


def records(source: Source) -> Iterator[bytes]:
    """The contents of the file's records; damage ends the reading where the next record cannot be found."""
    stream = _Bytes(source.chunks())
    while header := stream.take(HEADER.size):
        if len(header) < HEADER.size:
            source.warn("the file ends inside a record: what came before it was read")
            return
        length, checksum = HEADER.unpack(header)
        if masked_crc(header[:8]) != checksum:
            source.warn(f"the record before byte {stream.passed} is damaged: what came before it was read")
            return
        if length > MAX_RECORD:
            source.warn(f"a record of {length} bytes was passed over")
            stream.drop(length + FOOTER.size)
            continue
        content = stream.take(length + FOOTER.size)
        if len(content) < length + FOOTER.size:
            source.warn("the file ends inside a record: what came before it was read")
            return
        if length <= MAX_CHECKED and masked_crc(content[:length]) != FOOTER.unpack_from(content, length)[0]:
            source.warn("a record does not fit its checksum and was skipped")
            continue
        yield content[:length]


class _Bytes:
    """Chunks of bytes taken in pieces of any size."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0
        self.passed = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes; fewer at the end."""
        piece = self._chunk[self._at : self._at + size]
        self._at += len(piece)
        if len(piece) < size:
            parts = [piece]
            missing = size - len(piece)
            while missing and self._next():
                part = self._chunk[:missing]
                self._at = len(part)
                missing -= len(part)
                parts.append(part)
            piece = b"".join(parts)
        self.passed += len(piece)
        return piece

    def drop(self, size: int) -> None:
        """Go past `size` bytes without holding them."""
        while size > 0 and (piece := self.take(min(size, 1 << 20))):
            size -= len(piece)

    def _next(self) -> bool:
        self._chunk, self._at = next(self._chunks, b""), 0
        return bool(self._chunk)


def _event_parser() -> tuple[Callable[[bytes], Any], type[Exception]]:
    """What decodes an event, and the error that it raises. Needs the extra: pip install 'gradwatch[server]'."""
    with warnings.catch_warnings():
        # generated protobuf code warns of versions, which no reader of a log can change
        warnings.simplefilter("ignore")
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]  # noqa: PLC0415
    return Event.FromString, DecodeError


def _scalar(value: Any, foreign: set[str]) -> float | None:
    """A summary's value as a number, or None. Only a tag's first value names its plugin: `foreign` keeps such tags."""
    plugin = value.metadata.plugin_data.plugin_name
    if plugin and plugin != "scalars":
        foreign.add(value.tag)
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    return tensor_scalar(value.tensor) if kind == "tensor" and value.tag not in foreign else None


CONTENT_FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e", 22: "I", 23: "Q"}
"""The struct format of each data type of TensorFlow, but of bfloat16 (14), which struct does not know."""
FIELDS = {1: "float_val", 2: "double_val", 9: "int64_val", 10: "bool_val", 22: "uint32_val", 23: "uint64_val"}
"""Where a single value of a data type stands; the half types share `half_val`, the small integers `int_val`."""
HALF, BFLOAT16 = 19, 14


def tensor_scalar(tensor: Any) -> float | None:
    """The number of a TensorProto with one element; None for another shape or type. Zeros may be left out of it."""
    kind = int(tensor.dtype)
    if kind not in CONTENT_FORMATS and kind != BFLOAT16:
        return None
    if any(size.size != 1 for size in tensor.tensor_shape.dim) or tensor.tensor_shape.unknown_rank:
        return None
    if tensor.tensor_content:
        return _content_scalar(tensor.tensor_content, kind)
    name = "half_val" if kind in (HALF, BFLOAT16) else FIELDS.get(kind, "int_val")
    listed: Any = getattr(tensor, name)
    if not listed:
        return 0.0
    bits = int(listed[0]) & 0xFFFF if name == "half_val" else 0
    return _content_scalar(struct.pack("<H", bits), kind) if name == "half_val" else float(listed[0])


def _content_scalar(content: bytes, kind: int) -> float | None:
    """A number from its little-endian bytes; bfloat16 is the upper half of a float."""
    if kind == BFLOAT16:
        content, kind = b"\0\0" + content, 1
    layout = "<" + CONTENT_FORMATS[kind]
    return float(struct.unpack(layout, content)[0]) if len(content) == struct.calcsize(layout) else math.nan
