"""The first bytes of a file as text, for importers that recognise a format from it."""

from __future__ import annotations

import codecs


def head_text(head: bytes) -> str:
    """The bytes decoded as UTF-16 after its byte order mark and else as UTF-8; damage becomes U+FFFD."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return head.decode("utf-16", errors="replace")
    return head.decode("utf-8-sig", errors="replace")
