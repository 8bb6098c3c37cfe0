"""Numbers as messages say them."""

from __future__ import annotations


def times(ratio: float) -> str:
    """A ratio: 3.1, 12.5, 3,530, and powers of ten only where nobody would read the digits."""
    return f"{ratio:,.0f}" if 100 <= ratio < 1e7 else f"{ratio:.3g}"


def at_steps(start: int, end: int) -> str:
    """A step or a range of steps."""
    return f"at step {start:,}" if start == end else f"at steps {start:,}–{end:,}"
