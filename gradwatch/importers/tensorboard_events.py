"""Reads TensorBoard event files through the `tensorboard` package's own loader."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradwatch.errors import UnreadableLogError
from gradwatch.importers.base import Row
from gradwatch.importers.source import Source

MAGIC = b"brain.Event:"
MAGIC_WITHIN = 128
FRAME_BYTES = 16
"""Length, its checksum, and the content's checksum, around every record."""


class TensorboardEvents:
    """One row a scalar, with its tag as `axis`, since each tag may count other steps than the rest."""

    format = "tfevents"
    rewritten = False

    def recognises(self, head: bytes) -> bool:
        """A first record that names the file's version."""
        return MAGIC in head[:MAGIC_WITHIN]

    def rows(self, source: Source) -> Iterator[Row]:
        """All scalars in file order; text, images and histograms are passed over."""
        reader = _Reader()
        foreign: set[str] = set()
        for record in _records(source, reader):
            try:
                event = reader.parse(record)
            except reader.parse_error:
                source.warn("a record is no TensorBoard event and was skipped")
                continue
            for value in event.summary.value:
                scalar = reader.scalar(value, foreign)
                if scalar is not None:
                    yield Row({value.tag: scalar}, step=event.step, wall_time=event.wall_time, axis=value.tag)


class _Reader:
    """What is used of the `tensorboard` package, which takes half a second to import."""

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                # Generated protobuf code warns of versions, which no reader of a log can change.
                warnings.simplefilter("ignore")
                from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415
                from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader  # noqa: PLC0415
                from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]  # noqa: PLC0415
                from tensorboard.util import tensor_util  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise UnreadableLogError(f"TensorBoard events need {error.name}: pip install 'gradwatch[server]'") from error
        self.open: Callable[[str], Any] = RawEventFileLoader
        self.parse: Callable[[bytes], Any] = Event.FromString
        self.parse_error: type[Exception] = DecodeError
        self._to_array: Callable[[Any], Any] = tensor_util.make_ndarray

    def scalar(self, value: Any, foreign: set[str]) -> float | None:
        """A summary's value as a number, or None. Only a tag's first value names its plugin: `foreign` keeps such tags."""
        plugin = value.metadata.plugin_data.plugin_name
        if plugin and plugin != "scalars":
            foreign.add(value.tag)
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            return float(value.simple_value)
        if kind != "tensor" or value.tag in foreign:
            return None
        try:
            array = self._to_array(value.tensor)
            return float(array.item()) if array.size == 1 else None
        except (TypeError, ValueError):  # text, or a shape that the content does not fill
            return None


def _records(source: Source, reader: _Reader) -> Iterator[bytes]:
    """The contents of the file's records; damage ends the reading, and is said."""
    with _plain_file(source) as path:
        loader = reader.open(str(path))
        passed = 0
        try:
            while True:
                for record in loader.Load():
                    passed += FRAME_BYTES + len(record)
                    source.advance(FRAME_BYTES + len(record))
                    yield record
                if not source.more():
                    break
        except (MemoryError, OverflowError):  # a damaged length claims more than there is
            pass
        size = path.stat().st_size
        if passed < size:
            source.warn(f"the file is cut or damaged at byte {passed:,} of {size:,}: what came before was read")


@contextmanager
def _plain_file(source: Source) -> Iterator[Path]:
    """The file itself, or an unpacked copy: the loader takes a path."""
    if not source.packed:
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="gradwatch-", suffix=".tfevents") as copy:
        for chunk in source.chunks():
            copy.write(chunk)
        copy.flush()
        yield Path(copy.name)
