"""Roles that come with the rows of a data set, as numbers in a column of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch_hooks.hf.watched import WatchedTrainer

IGNORED_LABEL = -100


class RoleColumn:
    """Takes the column with the role ids out of each batch, and opens those roles around the forward pass and backward.

    The trainer would drop a column that the model's `forward` does not take (`remove_unused_columns`), so it is put on the
    trainer's list of those to keep.
    """

    def __init__(self, watched: WatchedTrainer, column: str) -> None:
        self._watched = watched
        self._column = column
        _keep(watched.trainer, column)
        watched.methods.wrap("training_step", self._training_step)
        watched.methods.wrap("prediction_step", self._prediction_step)

    def _training_step(self, step: Callable[..., Tensor], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        watcher = self._watched.watcher
        ids = self._taken(inputs)
        if watcher is not None and ids is not None:
            watcher.open_roles(ids, mask=_loss_mask(inputs))
        try:
            return step(model, inputs, *args, **kwargs)
        finally:
            if watcher is not None:
                watcher.close_roles()

    def _prediction_step(self, step: Callable[..., Any], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._taken(inputs)
        return step(model, inputs, *args, **kwargs)

    def _taken(self, inputs: Any) -> Tensor | None:
        """The role ids, taken out of a batch."""
        ids: Tensor | None = None
        guard = self._watched.callback.guard
        with guard.within("the role ids of a batch"):
            ids = inputs.pop(self._column, None)
            if ids is None:
                guard.notices.once("no-ids", self._missing(inputs))
        return ids

    def _missing(self, inputs: Mapping[str, Any]) -> str:
        return (
            f"a batch came without {self._column!r}, only with {', '.join(map(str, inputs))}: the data collator has to keep that "
            "column, else there are no role gradients"
        )


def check_column(dataset: Any, column: str, roles: int) -> None:
    """Raise SettingsError where a data set lacks a column of role ids below `roles`; one that can only be iterated passes."""
    names = getattr(dataset, "column_names", None)
    if names is None and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and len(dataset):
        first = dataset[0]
        names = list(first) if isinstance(first, Mapping) else None
    if names is not None and column not in names:
        raise SettingsError(
            f"the training data has no column {column!r} with role ids, only {', '.join(names)}: name it with role_column="
        )
    if not hasattr(dataset, "unique"):
        return
    feature = dataset.features[column]
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        return
    found = sorted(dataset.unique(column))
    if found and not -1 <= found[0] <= found[-1] < roles:
        raise SettingsError(
            f"column {column!r} holds ids from {found[0]} to {found[-1]}: {roles} roles make ids from 0 to {roles - 1}, -1 for none"
        )


def _keep(trainer: Any, column: str) -> None:
    if trainer.args.remove_unused_columns:
        trainer._set_signature_columns_if_needed()
        trainer._signature_columns = [*trainer._signature_columns, column]


def _loss_mask(inputs: Mapping[str, Any]) -> Tensor | None:
    """Which tokens of a language model's batch are learned: (B, T - 1); None where labels are of another kind."""
    labels = inputs.get("labels")
    ids = inputs.get("input_ids")
    if not isinstance(labels, Tensor) or not isinstance(ids, Tensor) or labels.shape != ids.shape or labels.dim() != 2:
        return None
    return labels[:, 1:] != IGNORED_LABEL
