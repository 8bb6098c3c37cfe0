"""What the catalogue knows of a metric."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric. `better` is "min", "max" or "" where neither end is better.

    An alias is written in lower case, without the stream (`eval/`, `val_`), the statistic (`_mean`, `/max`) and the names of
    roles and ranks: `keys.resolve` takes those off before it looks here.
    """

    name: str
    unit: str
    better: str
    meaning: str
    aliases: tuple[str, ...] = ()
