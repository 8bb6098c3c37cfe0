"""Reads JSON text piece by piece: the elements of one huge array without ever holding the array.

A window slides over the text; values inside it are decoded by the standard library's decoder, so NaN and Infinity are
accepted. Time is linear in the text and memory is bounded by `MAX_VALUE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_VALUE = 8 * 2**20
"""Characters of one value that is decoded whole; a decoded value can take thirty times as many bytes."""
MARGIN = 64
"""A value that ends this close to the window's end may go on behind it, as `1.5` does in `1.5e-3`."""
MAX_DAMAGE = 20
"""Damaged places that are skipped: each can cost a look at `MAX_VALUE` characters."""

BLANK = re.compile(r"[ \t\r\n\0\ufeff]*")
NEXT_OBJECT = re.compile(r"\}[\s\0]*+,[\s\0]*+(?=\{)")
STRUCTURE = re.compile(r'["\[\]{}]')
STRING_MARK = re.compile(r'["\\]')


class BrokenJsonError(ValueError):
    """The text stops being JSON, or holds a value too large or too deep to decode; the message says where and why."""


HUGE = 10**400
"""Stands for every integer beyond the interpreter's digit limit: like them it is too large for a float."""


def whole_number(digits: str) -> int:
    """An integer of any length."""
    try:
        return int(digits)
    except ValueError:
        return HUGE


DECODER = json.JSONDecoder(strict=False)
LONG_DECODER = json.JSONDecoder(strict=False, parse_int=whole_number)


def decode(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and its end. Raises BrokenJsonError for nesting, JSONDecodeError for bad text."""
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise BrokenJsonError("a value is nested too deeply to decode") from None
    except ValueError:  # an integer beyond the digit limit; the slower decoder takes it
        return LONG_DECODER.raw_decode(text, at)


class JsonStream:
    """A position in a JSON text that comes in chunks. Each method reads on from there."""

    def __init__(self, chunks: Iterable[str], warn: Callable[[str], None]) -> None:
        self._chunks = iter(chunks)
        self._warn = warn
        self._text = ""
        self._at = 0
        self._passed = 0
        self._ended = False
        self._damage = 0

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the text."""
        while True:
            found = BLANK.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._have(1)

    def take(self, mark: str) -> bool:
        """Go past `mark` if it comes next."""
        if self.peek() != mark:
            return False
        self._at += 1
        return True

    def expect(self, mark: str) -> None:
        """Go past `mark`, which must come next."""
        if not self.take(mark):
            found = f"not {self.peek()!r}" if self.peek() else "the text ends"
            raise self._broken(f"{mark!r} should come here, {found}")

    def value(self) -> Any:
        """The value that begins here. After BrokenJsonError the position is still at its beginning."""
        if not self.peek():
            raise self._broken("the text ends where a value should come")
        wanted = MARGIN
        while True:
            self._have(wanted)
            found = self._decoded()
            if found is not None:
                self._at = found[1]
                return found[0]
            held = len(self._text) - self._at
            if held > MAX_VALUE:
                raise self._broken(f"a value is longer than {MAX_VALUE // 2**20} MiB")
            wanted = 2 * held

    def small_value(self) -> Any:
        """The value that begins here, or None for one that is too large or too deep to decode, which is passed over."""
        try:
            return self.value()
        except BrokenJsonError:
            self.skip()
            return None

    def skip(self) -> None:
        """Go past the value that begins here without decoding it, however large or deep it is."""
        if self.peek() not in ("[", "{", '"'):
            self.value()
            return
        depth, in_string = 0, False
        while True:
            mark = self._search(STRING_MARK if in_string else STRUCTURE)
            if mark == "\\":
                self._have(1)
                self._at = min(self._at + 1, len(self._text))
            elif mark == '"':
                in_string = not in_string
            else:
                depth += 1 if mark in "[{" else -1
            if depth == 0 and not in_string:
                return

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here. The caller reads each key's value before it asks for the next."""
        self.expect("{")
        while not self.take("}"):
            key = self.value()
            if not isinstance(key, str):
                raise self._broken("a key is not a string")
            self.expect(":")
            yield key
            if not self.take(",") and self.peek() != "}":
                raise self._broken("',' or '}' should come here")

    def elements(self) -> Iterator[Any]:
        """The elements of the array that begins here; damage is skipped up to the next object, and said."""
        self.expect("[")
        while not self.take("]"):
            try:
                element = self.value()
                if not self.take(",") and self.peek() not in ("]", ""):
                    raise self._broken("',' or ']' should come here")
            except BrokenJsonError as error:
                self._damage += 1
                if self._damage > MAX_DAMAGE or not self._resync():
                    raise
                self._warn(f"{error}: the reading goes on at the next record")
                continue
            if isinstance(element, int | float) and not self.peek():
                raise self._broken("the text ends after a number that may be cut")
            yield element

    def _have(self, wanted: int) -> None:
        """Slide the window until it holds `wanted` characters from here on, or the text's end."""
        held = len(self._text) - self._at
        if self._ended or held >= wanted:
            return
        parts = [self._text[self._at :]]
        self._passed += self._at
        self._at = 0
        while held < wanted and not self._ended:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
            else:
                parts.append(chunk)
                held += len(chunk)
        self._text = "".join(parts)

    def _decoded(self) -> tuple[Any, int] | None:
        """The value that begins here and its end; None when it may go on behind the window."""
        try:
            found = decode(self._text, self._at)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated") or error.pos > len(self._text) - MARGIN
            if cut and not self._ended:
                return None
            raise self._broken("the text ends inside a value" if cut else error.msg) from None
        except BrokenJsonError as error:
            raise self._broken(str(error)) from None
        return found if self._ended or found[1] + MARGIN < len(self._text) else None

    def _search(self, pattern: re.Pattern[str]) -> str:
        """Go past the next match of a one-character pattern and say which character it was."""
        while True:
            found = pattern.search(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return found[0]
            self._at = len(self._text)
            if self._ended:
                raise self._broken("the text ends inside a value")
            self._have(1)

    def _resync(self) -> bool:
        """Go to the next object that follows another one and a comma; False where none comes."""
        self._at = min(self._at + 1, len(self._text))
        while True:
            found = NEXT_OBJECT.search(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return True
            self._at = max(self._at, len(self._text) - MARGIN)
            if self._ended:
                return False
            self._have(len(self._text) - self._at + 1)

    def _broken(self, reason: str) -> BrokenJsonError:
        return BrokenJsonError(f"at character {self._passed + self._at}: {reason}")
