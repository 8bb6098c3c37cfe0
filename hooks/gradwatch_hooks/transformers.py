"""The hook for the Hugging Face Trainer: gradients, losses, evaluations and checkpoints of a training, at the trainer's steps.

from gradwatch_hooks.transformers import GradwatchCallback, watch_trainer

trainer = Trainer(model, args, ..., callbacks=[GradwatchCallback()])      # or, with roles:
watch_trainer(trainer, roles=["solver", "verifier"], role_column="role_ids")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwatch_hooks.hf.callback import GradwatchCallback
from gradwatch_hooks.hf.role_column import RoleColumn, check_column
from gradwatch_hooks.hf.watched import WatchedTrainer

if TYPE_CHECKING:
    from transformers import Trainer

    from gradwatch.client.run import Run
    from gradwatch_hooks.watching.cast import Name

__all__ = ["GradwatchCallback", "WatchedTrainer", "watch_trainer"]


def watch_trainer(
    trainer: Trainer, *, run: Run | None = None, roles: Sequence[Name] = (), role_column: str = "role_ids", **options: Any
) -> WatchedTrainer:
    """Watch a Trainer, before it trains; `unwatch()` on what is returned takes everything off again.

    Beside what `GradwatchCallback` does, the loss is logged as it was where the trainer filters NaN and infinities out of it, an
    error or interrupt leaves the model unwatched, and with `roles` each batch's gradients are told apart by role. The batches
    hold them in `role_column`: (B,) or (B, T) whole numbers that index `roles`, -1 for none; the model does not get to see it.
    The data collator has to make a tensor of that column, as the default ones do. `options` are those of `watch` in
    `gradwatch_hooks.torch`.

    Raises SettingsError where the trainer is watched already, or its data has no such column or ids that name no role.
    """
    if roles:
        check_column(trainer.train_dataset, role_column, len(roles))
    watched = WatchedTrainer(trainer, GradwatchCallback(run, roles=roles, **options))
    if roles:
        RoleColumn(watched, role_column)
    return watched
