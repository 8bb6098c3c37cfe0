"""A log file as importers see it: streamed, with bounded lines, a place for warnings and a progress callback."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

HEAD_BYTES = 256 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_WARNINGS = 50


class MisjudgedError(Exception):
    """What was made of a growing file's beginning is refuted by what came later: it is to be read again from its start."""


class Source:
    """One file. Opening it may raise OSError; reading it holds at most one line or chunk in memory."""

    def __init__(self, path: Path, progress: Callable[[int], None] | None = None) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.format = ""
        """The form that was read, where an importer reads several and learns only while reading which one it is."""
        self.idle = False
        """Whether a file that still grows was read as far as it goes: what a reader holds back for a better answer may come out."""
        self._muted = 0
        self._progress = progress

    def warn(self, message: str) -> None:
        """Keep a message for the report; repetitions and everything past the fiftieth are only counted."""
        if message in self.warnings:
            return
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(message)
        else:
            self._muted += 1

    def all_warnings(self) -> list[str]:
        """The warnings, with a last one that counts those left out."""
        if not self._muted:
            return list(self.warnings)
        return [*self.warnings, f"{self._muted} further warnings of this file are not shown"]

    def head(self) -> bytes:
        """The first bytes, decompressed where the file is gzip; fewer where that is damaged."""
        head = b""
        with self.open() as stream:
            try:
                while len(head) < HEAD_BYTES and (piece := stream.read1(HEAD_BYTES - len(head))):
                    head += piece
            except (EOFError, gzip.BadGzipFile, zlib.error):
                return head  # reading the rows says what is damaged
        return head

    @property
    def packed(self) -> bool:
        """Whether the file is gzip."""
        with self.path.open("rb") as raw:
            return raw.read(2) == b"\x1f\x8b"

    def open(self) -> io.BufferedReader | gzip.GzipFile:
        """The file's bytes from the start, decompressed where it is gzip."""
        return gzip.GzipFile(self.path, "rb") if self.packed else self.path.open("rb")

    def advance(self, count: int) -> None:
        """Report that so many bytes were read."""
        if self._progress is not None:
            self._progress(count)

    def more(self) -> bool:
        """Whether the file goes on behind its end: never, for one that is not followed."""
        return False

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The file's bytes in chunks, reporting progress."""
        with self.open() as stream:
            try:
                # read1, since read loses what a damaged gzip stream gave before its damage
                while chunk := stream.read1(size):
                    self.advance(len(chunk))
                    yield chunk
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                self.warn(f"the gzip stream ends early ({error}): what came before the damage was read")

    def text(self) -> Iterator[str]:
        """The file's text in chunks; bytes that are not UTF-8 become U+FFFD, a byte order mark is dropped."""
        decoder: codecs.IncrementalDecoder | None = None
        for chunk in self.chunks():
            if decoder is None:
                utf16 = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                decoder = codecs.getincrementaldecoder("utf-16" if utf16 else "utf-8-sig")(errors="replace")
            yield decoder.decode(chunk)
        if decoder is not None:
            yield decoder.decode(b"", final=True)

    def lines(self) -> Iterator[str]:
        """The file's lines without their newline; a carriage return stays. Overlong lines are skipped, and said."""
        number, kept, skipping = 0, "", False
        for chunk in self.text():
            parts = (kept + chunk).split("\n")
            kept = parts.pop()
            for line in parts:
                number += 1
                if not skipping:
                    yield line
                skipping = False
            if len(kept) > MAX_LINE_BYTES:
                self.warn(
                    f"line {number + 1} is longer than {MAX_LINE_BYTES // 2**20} MiB and was skipped; split it to have it read"
                )
                kept, skipping = "", True
        if kept and not skipping:
            yield kept
