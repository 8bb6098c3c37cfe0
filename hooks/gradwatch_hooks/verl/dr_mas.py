"""Role gradients in older verl, as the Dr. MAS fork has it: `DataParallelPPOActor.update_policy` (verl 0.3).

Written from that code's documented shapes, and tested against a stub built from them only: the fork itself needs CUDA.

    data.non_tensor_batch["agent_id"]      (N,) object: the agent of each row; `wg_id` (N,): the group of weights, equal in all
    data.batch[...]                        (N, T): input_ids, attention_mask, position_ids; (N, R): responses, old_log_probs ...
    update_policy(data)                    data.select(batch_keys=select_keys).batch, which drops agent ids → mini-batches
                                           → micro-batches → _forward_micro_batch → backward; then _optimizer_step
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradwatch.client.run import Run
from gradwatch.errors import SettingsError
from gradwatch_hooks.verl.packing import Sequences, tokens_of
from gradwatch_hooks.verl.role_ids import ROLE_IDS, agent_ids, index_names
from gradwatch_hooks.verl.role_watch import OPTIMIZER, RoleWatch, argument

METHODS = ("update_policy", "_forward_micro_batch", "_optimizer_step")


class ActorWatch(RoleWatch):
    """Watches one `DataParallelPPOActor`: each group of weights has its own, in processes of its own."""

    def __init__(self, actor: Any, *, roles: Sequence[str], run: Run | None, options: dict[str, Any]) -> None:
        super().__init__(
            actor, actor.actor_module, actor.actor_optimizer, None, roles=roles, run=run, steps=OPTIMIZER, options=options
        )
        self._is_packed = bool(getattr(actor, "use_remove_padding", False))
        self._is_split = bool(getattr(actor, "use_ulysses_sp", False))
        self.methods.wrap("update_policy", self._update_policy)
        self.methods.wrap("_forward_micro_batch", self._forward_micro_batch)
        self.methods.wrap("_optimizer_step", self.optimizer_step)

    def _update_policy(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.guard.within("ActorWatch.update_policy"):
            self._keep_roles(argument(args, kwargs, 0, "data"))
        try:
            return original(*args, **kwargs)
        finally:
            self.close()

    def _keep_roles(self, data: Any) -> None:
        """Put the rows' role ids into the batch, and have the selection that follows keep them."""
        if ROLE_IDS not in data.batch.keys():  # noqa: SIM118 - a TensorDict tells its keys only so
            names = agent_ids(data.non_tensor_batch)
            if names is None:
                self.guard.notices.once("ids", "no role gradients: the batch holds neither role_ids nor agent_id")
                return
            data.batch[ROLE_IDS] = index_names(names, self.names)
        select = data.select

        def keep(batch_keys: Any = None, *args: Any, **kwargs: Any) -> Any:
            # The caller's own list: it selects by it again from mini-batches of images.
            if isinstance(batch_keys, list) and ROLE_IDS not in batch_keys:
                batch_keys.append(ROLE_IDS)
            return select(batch_keys, *args, **kwargs)

        data.select = keep

    def _forward_micro_batch(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.close()
        if torch.is_grad_enabled():
            found = None
            with self.guard.within("ActorWatch.forward_micro_batch"):
                found = self._read(argument(args, kwargs, 0, "micro_batch"))
            if found is not None:
                self.open(*found)
        return original(*args, **kwargs)

    def _read(self, batch: Any) -> tuple[Sequences, int, int] | None:
        if ROLE_IDS not in batch.keys():  # noqa: SIM118
            return None
        mask_BT = batch["attention_mask"].cpu()
        answered = batch["loss_mask"] if "loss_mask" in batch.keys() else batch["attention_mask"]  # noqa: SIM118
        found = Sequences(batch[ROLE_IDS].cpu(), mask_BT.sum(-1), tokens_of(answered[:, -batch["responses"].shape[-1] :]))
        total = int(found.lengths_B.sum())
        if self._is_packed:
            return found, 1, 0 if self._is_split else total
        return found, len(mask_BT), mask_BT.shape[1]


def watch_dp_actor(actor: Any, run: Run | None = None, roles: Sequence[str] = (), **options: Any) -> ActorWatch:
    """Watch the gradients of a `DataParallelPPOActor` of older verl, by the `agent_id` of its rows; call it on every rank.

    After the worker's `init_model`: `watch_dp_actor(worker.actor, roles=["Solver Agent", "Verifier Agent"], policy=wg_id)`.
    `policy` keeps the groups of weights apart in one run. Rows of agents that are not among `roles` belong to no role. Otherwise as
    `watch_worker`. Tested against a stub only. Raises SettingsError for another object, and what `watch` raises.
    """
    if missing := [name for name in METHODS if not hasattr(actor, name)]:
        raise SettingsError(f"watch_dp_actor: {type(actor).__name__} has no {', '.join(missing)}; give verl's DataParallelPPOActor")
    if getattr(actor, "actor_optimizer", None) is None:
        raise SettingsError("watch_dp_actor: an actor without optimizer is a reference policy, and trains nothing")
    return ActorWatch(actor, roles=roles, run=run, options=options)
