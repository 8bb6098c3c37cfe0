"""The loops of verl's workers without verl: `FSDPEngine` of 0.9.1, and `DataParallelPPOActor` of 0.3 as the Dr. MAS fork has it.

Method names, arguments, fields, shapes and order of calls are theirs; models, losses and what is not called here are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class TokenModel(nn.Module):
    """A number for each token, of itself alone, so that packing changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed = nn.Embedding(11, 6)
            self.body = nn.Linear(6, 6)
            self.head = nn.Linear(6, 1)

    def forward(self, ids_BT: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.body(self.embed(ids_BT))))[..., 0]
        return found


class Engine:
    """`FSDPEngineWithLMHead`: micro-batches of jagged sequences, given to the model padded or packed into one row."""

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer | None, clip: float = float("inf"), scaler: Any = None
    ) -> None:
        self.module, self.optimizer, self.clip, self.scaler = module, optimizer, clip, scaler

    def train_batch(self, data: list[Mapping[str, Any]], loss_function: Callable[..., Any]) -> float:
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        self.forward_backward_batch(data, loss_function, forward_only=False)
        return self.optimizer_step()

    def infer_batch(self, data: list[Mapping[str, Any]], loss_function: Callable[..., Any]) -> None:
        with torch.no_grad():
            self.forward_backward_batch(data, loss_function, forward_only=True)

    def forward_backward_batch(self, data: list[Mapping[str, Any]], loss_function: Callable[..., Any], forward_only: bool) -> None:
        for micro_batch in data:
            loss, _ = self.forward_step(micro_batch, loss_function=loss_function, forward_only=forward_only)
            if not forward_only:
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def forward_step(self, micro_batch: Mapping[str, Any], loss_function: Callable[..., Any], forward_only: bool) -> Any:
        model_inputs, _ = self.prepare_model_inputs(micro_batch=micro_batch)
        loss = loss_function(model_output=self.module(model_inputs["input_ids"]), data=micro_batch)
        return loss, {"loss": float(loss.detach())}

    def prepare_model_inputs(self, micro_batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        ids = micro_batch["input_ids"]
        if not micro_batch.get("use_remove_padding", False):
            return {"input_ids": torch.nested.to_padded_tensor(ids, 0)}, {}
        packed = nn.functional.pad(ids.values(), (0, micro_batch.get("pad", 0)))
        return {"input_ids": packed[None]}, {}

    def optimizer_step(self) -> float:
        assert self.optimizer is not None
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(self.module.parameters(), max_norm=self.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif not torch.isfinite(grad_norm):
            self.optimizer.zero_grad()
        else:
            self.optimizer.step()
        return float(grad_norm)


class Batch(dict[str, Tensor]):
    """A `TensorDict`, as far as the actor uses it: columns of equal length."""

    def split(self, size: int) -> Iterator[Batch]:
        rows = len(next(iter(self.values())))
        return (Batch({name: one[at : at + size] for name, one in self.items()}) for at in range(0, rows, size))


class DataProto:
    """Columns of tensors, and of objects, which `select` leaves out unless they are named."""

    def __init__(self, batch: Mapping[str, Tensor], non_tensor_batch: Mapping[str, Any]) -> None:
        self.batch, self.non_tensor_batch = Batch(batch), dict(non_tensor_batch)

    def __len__(self) -> int:
        return len(next(iter(self.batch.values())))

    def select(self, batch_keys: list[str] | None = None, non_tensor_batch_keys: list[str] | None = None) -> DataProto:
        chosen = self.batch if batch_keys is None else {name: self.batch[name] for name in batch_keys}
        return DataProto(chosen, {name: self.non_tensor_batch[name] for name in non_tensor_batch_keys or ()})


class Actor:
    """`DataParallelPPOActor`, whose model gives the log-probabilities of a row's tokens."""

    use_remove_padding = False
    use_ulysses_sp = False

    def __init__(self, actor_module: nn.Module, actor_optimizer: torch.optim.Optimizer | None, mini: int, micro: int) -> None:
        self.actor_module, self.actor_optimizer = actor_module, actor_optimizer
        self.mini, self.micro, self.clip = mini, micro, float("inf")

    def _forward_micro_batch(self, micro_batch: Mapping[str, Tensor], temperature: float, calculate_entropy: bool = False) -> Any:
        ids, mask = micro_batch["input_ids"], micro_batch["attention_mask"].bool()
        if self.use_remove_padding:
            log_probs = torch.zeros(ids.shape).masked_scatter(mask, self.actor_module(ids[mask][None])[0])
        else:
            log_probs = self.actor_module(ids) * mask
        return None, log_probs[:, -micro_batch["responses"].shape[1] :] / temperature

    def compute_log_prob(self, data: DataProto) -> list[Tensor]:
        with torch.no_grad():
            return [self._forward_micro_batch(one, temperature=1.0)[1] for one in data.batch.split(self.micro)]

    def update_policy(self, data: DataProto) -> dict[str, list[float]]:
        assert self.actor_optimizer is not None
        group = data.non_tensor_batch["wg_id"][0]
        select_keys = ["responses", "input_ids", "attention_mask", "advantages"]
        metrics: dict[str, list[float]] = {}
        for mini_batch in data.select(batch_keys=select_keys).batch.split(self.mini):
            self.actor_optimizer.zero_grad()
            for micro_batch in mini_batch.split(self.micro):
                mask = micro_batch["attention_mask"][:, -micro_batch["responses"].size(1) :]
                _, log_prob = self._forward_micro_batch(micro_batch=micro_batch, temperature=1.0, calculate_entropy=False)
                loss = -(log_prob * micro_batch["advantages"] * mask).sum() / mask.sum()
                (loss / (self.mini // self.micro)).backward()
            metrics.setdefault(f"actor/{group}/grad_norm", []).append(float(self._optimizer_step()))
        self.actor_optimizer.zero_grad()
        return metrics

    def _optimizer_step(self) -> Tensor:
        assert self.actor_optimizer is not None
        grad_norm = nn.utils.clip_grad_norm_(self.actor_module.parameters(), max_norm=self.clip)
        if not torch.isfinite(grad_norm):
            self.actor_optimizer.zero_grad()
        else:
            self.actor_optimizer.step()
        return grad_norm
