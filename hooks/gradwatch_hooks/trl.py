"""The hook for TRL's GRPOTrainer: gradients by role, and every rollout with its rewards, advantage and influence.

from gradwatch_hooks.trl import watch_grpo

trainer = GRPOTrainer(model, reward_funcs, args, train_dataset=data)     # data has a column `role`
watch_grpo(trainer)
trainer.train()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwatch.errors import SettingsError
from gradwatch_hooks.hf.callback import GradwatchCallback
from gradwatch_hooks.hf.generations import Generations
from gradwatch_hooks.hf.grpo import GrpoRoles
from gradwatch_hooks.hf.row_roles import row_roles
from gradwatch_hooks.hf.watched import WatchedTrainer

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

    from gradwatch.client.run import Run
    from gradwatch_hooks.hf.rollouts import FormatValid
    from gradwatch_hooks.hf.row_roles import Name, RoleOf

__all__ = ["watch_grpo"]


def watch_grpo(
    trainer: GRPOTrainer,
    *,
    run: Run | None = None,
    roles: Sequence[Name] | None = None,
    role_of: RoleOf | None = None,
    format_valid: FormatValid | None = None,
    **options: Any,
) -> WatchedTrainer:
    """Watch a GRPOTrainer, before it trains; `unwatch()` on what is returned takes everything off again.

    `role_of` names the column of the training data with each prompt's role (`role` where there is such a column), or is a function
    of a row that gives a role or (role, agent); `roles` declares them, and is read from the column where it is None; with no roles,
    no gradient is told apart. `format_valid` tells of a completion's text whether it has the form that was asked for. `options` are
    those of `watch` in `gradwatch_hooks.torch`.

    Each optimizer step logs gradients by role; each generation each role's rewards, advantages and lengths; the step that first
    learns from a rollout logs it as a sample, with its influence on that step's gradient. Of several processes each logs its own
    rollouts.

    Raises SettingsError where the trainer is watched already, roles cannot be read from the data or are not the declared ones, or
    the trainer drops their column.
    """
    rows = row_roles(trainer.train_dataset, role_of, roles)
    if rows.speakers and trainer.args.remove_unused_columns:
        raise SettingsError("the trainer drops the column with the roles: set remove_unused_columns=False in GRPOConfig")
    watched = WatchedTrainer(trainer, GradwatchCallback(run, roles=rows.speakers, **options))
    GrpoRoles(watched, rows, Generations(watched, rows, format_valid))
    return watched
