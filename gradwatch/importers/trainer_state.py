"""Reads `trainer_state.json`, which the Hugging Face Trainer and TRL leave in each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradwatch.importers.base import Row
from gradwatch.importers.json_flat import flat
from gradwatch.importers.json_outline import outline
from gradwatch.importers.json_stream import BrokenJsonError, JsonStream
from gradwatch.importers.source import Source

HISTORY = "log_history"
OWN_KEYS = frozenset({"best_global_step", "best_model_checkpoint", "is_hyper_param_search"})
"""Keys that stand before the history, for a beginning that is cut there."""


class TrainerState:
    """`{"log_history": [{"step": 1, "loss": 0.5}, …], "max_steps": 100, …}`; TRL writes null for an all-NaN metric."""

    format = "hf_trainer_state"
    rewritten = True

    def recognises(self, head: bytes) -> bool:
        """An object with `log_history`, or one cut before it among the keys that the Trainer writes first."""
        seen = outline(head)
        if seen.opening != "{" or seen.follows:
            return False
        return HISTORY in seen.kinds or (not seen.closed and not OWN_KEYS.isdisjoint(seen.kinds))

    def rows(self, source: Source) -> Iterator[Row]:
        """The history's entries, then one row with the settings beside it."""
        stream = JsonStream(source.text(), source.warn)
        settings: dict[str, Any] = {}
        try:
            for key in stream.members():
                if key == HISTORY and stream.peek() == "[":
                    yield from _history(stream, source)
                elif stream.peek() in ("[", "{"):
                    stream.skip()
                else:
                    settings[key] = stream.small_value()
        except BrokenJsonError as error:
            source.warn(f"{error}; what came before it was read")
        settings = {key: value for key, value in settings.items() if value is not None}
        if settings:
            yield Row(values={}, config=settings, record=False)


def _history(stream: JsonStream, source: Source) -> Iterator[Row]:
    for entry in stream.elements():
        if isinstance(entry, dict):
            found = flat(entry, source.warn, null_is_nan=True)
            yield Row(found.values, nulls=tuple(found.nulls))
        else:
            source.warn(f"an entry of {HISTORY} is no object and was skipped")
