"""Numbers as logs write them in text: plain, quoted, inside `np.float64(…)` or `tensor(…)`."""

from __future__ import annotations

import re

LONGEST = 400
WRAPPED = re.compile(
    r"(?:np\.|numpy\.|torch\.|jnp\.)?(?:u?int|float|bfloat|tensor|Tensor|array|Array|DeviceArray)\d*"
    r"\(\s*\[{0,2}\s*([-+.\w]+?)\.?\s*\]{0,2}\s*[,)]"
)
WORDS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}


def number(text: str) -> float | None:
    """The number that `text` writes; None for blanks, `None`, dates and all other text.

    Python's `1_000` is refused: in logs an underscore belongs to a name.
    """
    if len(text) > LONGEST:
        return None
    text = text.strip()
    if "_" not in text:
        try:
            return float(text)
        except ValueError:
            if not text or text in WORDS:
                return WORDS.get(text)
    wrapped = WRAPPED.match(text)
    return None if wrapped is None else number(wrapped[1])
