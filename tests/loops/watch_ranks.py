"""Two processes that train one model under `watch`, each way of spreading it with each engine; each leaves what it saw behind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from loops.speaking import SEQUENCES, Speaking, losses, tokens, true_gram
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch_hooks.torch import StepRecord, watch

RANKS, STEPS, FACTOR = 2, 2, 1000.0
ROLES = ("solver", "verifier")
MIXED = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1])
Wrap = Callable[[nn.Module], nn.Module]


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def ddp_views(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


def fsdp2(model: nn.Module) -> nn.Module:
    fully_shard(model.mix)
    return fully_shard(model)


def fsdp2_checkpointed(model: nn.Module) -> nn.Module:
    model.mix = checkpoint_wrapper(model.mix)
    return fsdp2(model)


def fsdp2_bf16(model: nn.Module) -> nn.Module:
    return fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


WRAPS: tuple[Wrap, ...] = (ddp, ddp_views, fsdp2, fsdp2_checkpointed, fsdp2_bf16)
ENGINES = ("auto", "exact", "split")


def words(rank: int, part: int = 0) -> Tensor:
    return tokens(10 * rank + part)


def mixed_truth() -> dict[str, float]:
    """Of the mean of both ranks' losses, on one process."""
    model = Speaking()
    shares = [losses(model, words(rank)) / (RANKS * SEQUENCES) for rank in range(RANKS)]
    return told_of(true_gram(model, [FACTOR * sum(one[k == MIXED].sum() for one in shares) for k in (0, 1)]))


def micro_truth() -> dict[str, float]:
    model = Speaking()
    return told_of(
        true_gram(model, [FACTOR * sum(losses(model, words(rank, k)).mean() for rank in range(RANKS)) / RANKS for k in (0, 1)])
    )


def told_of(gram: Tensor) -> dict[str, float]:
    norms = {role: math.sqrt(gram[k, k]) for k, role in enumerate(ROLES)}
    return {"": math.sqrt(gram.sum()), **norms, "cosine": float(gram[0, 1]) / (norms["solver"] * norms["verifier"])}


def told(record: StepRecord) -> dict[str, Any]:
    roles = record.roles
    if not isinstance(roles, RoleGradients):
        return {"": record.grad_norm, "why": getattr(roles, "reason", "nothing was measured")}
    norms = {role: roles.norm(role) for role in ROLES}
    return {"": record.grad_norm, **norms, "cosine": roles.cosine(*ROLES), "engine": roles.engine, "counts": roles.counts[:2]}


def mixed(rank: int, wrap: Wrap, engine: str) -> dict[str, Any]:
    """Both roles in one backward; steps do not change the weights, and gradients are clipped."""
    model = wrap(Speaking())
    optimizer, records = torch.optim.SGD(model.parameters(), 0.0), []
    options = {"engine": engine, "roles": ROLES, "max_overhead": None, "on_record": records.append}
    with watch(model, optimizer=optimizer, **options) as watcher:
        for _ in range(STEPS):
            optimizer.zero_grad()
            with watcher.roles(MIXED):
                (FACTOR * losses(model, words(rank)).sum() / SEQUENCES).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return told(records[-1])


def micro(rank: int, wrap: Wrap, order: tuple[int, ...] = (0, 1)) -> list[dict[str, Any]]:
    """A backward for each role, every one of them reduced; each step's record."""
    model = wrap(Speaking())
    optimizer, records = torch.optim.SGD(model.parameters(), 0.0), []
    with watch(model, optimizer=optimizer, roles=ROLES, max_overhead=None, on_record=records.append) as watcher:
        for _ in range(STEPS):
            optimizer.zero_grad()
            for k in order:
                with watcher.role(ROLES[k]):
                    (FACTOR * losses(model, words(rank, k)).mean()).backward()
            optimizer.step()
    return [told(one) for one in records]


def crossed(rank: int, wrap: Wrap) -> list[dict[str, Any]]:
    """While one rank runs the solver's backward the other runs the verifier's."""
    return micro(rank, wrap, (0, 1) if rank == 0 else (1, 0))


def one_rank_mixed(rank: int) -> list[dict[str, Any]]:
    """Rank 0 has one role in its batch, rank 1 has both."""
    model = ddp(Speaking())
    optimizer, records = torch.optim.SGD(model.parameters(), 0.0), []
    with watch(model, optimizer=optimizer, roles=ROLES, max_overhead=None, on_record=records.append) as watcher:
        for _ in range(2):
            optimizer.zero_grad()
            with watcher.roles(MIXED if rank else torch.zeros(SEQUENCES, dtype=torch.int64)):
                losses(model, words(rank)).mean().backward()
            optimizer.step()
    return [told(one) for one in records]


def nan_on_one_rank(rank: int) -> str:
    """A weight of the second rank's copy is NaN in its forward pass only."""
    net = Speaking()
    model = ddp(net)
    optimizer, records = torch.optim.SGD(model.parameters(), 0.0), []
    if rank == 1:
        net.mix.register_forward_pre_hook(lambda _, args: (args[0] * torch.nan,))
    with watch(model, optimizer=optimizer, on_record=records.append):
        losses(model, words(rank)).mean().backward()
        optimizer.step()
    return records[0].nonfinite


def bit_equal(rank: int, wrap: Wrap) -> bool:
    """Whether training under `watch` with mixed batches changed no bit of the weights."""
    trained = []
    for is_watched in (True, False):
        model = wrap(Speaking())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        watcher = (
            watch(model, optimizer=optimizer, roles=ROLES, max_overhead=None, on_record=lambda _: None) if is_watched else None
        )
        for number in range(5):
            optimizer.zero_grad()
            if watcher is not None:
                watcher.open_roles(MIXED)
            losses(model, words(rank, number)).mean().backward()
            if watcher is not None:
                watcher.close_roles()
            optimizer.step()
        if watcher is not None:
            watcher.detach()
        trained.append([one.detach().clone() for one in model.parameters()])
    return all(bool((one == other).all()) for one, other in zip(*trained, strict=True))


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    found: dict[str, Any] = {"mixed truth": mixed_truth(), "micro truth": micro_truth()}
    for wrap in WRAPS:
        for engine in ENGINES:
            found[f"{wrap.__name__} {engine}"] = mixed(rank, wrap, engine)
        found[f"{wrap.__name__} micro"] = micro(rank, wrap)[-1]
        found[f"{wrap.__name__} bit-equal"] = bit_equal(rank, wrap)
    found["ddp crossed"], found["fsdp2 crossed"] = crossed(rank, ddp), crossed(rank, fsdp2)
    found["one rank mixed"] = one_rank_mixed(rank)
    found["nan"] = nan_on_one_rank(rank)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
