"""Two processes that train one model, each way of spreading its gradient in turn; each rank leaves what it measured in a file."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from quantities.engines.tiny import cosines, gradient, norms, qwen, token_losses, tokens
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gradwatch.quantities import group_parameters
from gradwatch.quantities.engines.backwards import Backwards
from gradwatch.quantities.engines.engine import Engine, Target
from gradwatch.quantities.engines.micro import Micro
from gradwatch.quantities.engines.neutral import Neutral
from gradwatch.quantities.roles import assign_roles
from gradwatch.quantities.unavailable import Unavailable

RANKS, SPEAKERS, ROWS = 2, 3, 4
MIXED = torch.tensor([[0, 1, -1, 1], [1, 1, 0, -1]])  # the roles of each rank's rows

Found = dict[str, object]


def rows_of(rank: int) -> Tensor:
    return tokens(ROWS, 10, seed=rank + 1)


def truth(roles: Tensor) -> Tensor:
    """The Gram of the roles' gradients of the mean of all ranks' losses, on one process."""
    model, each = qwen(tied=False), []
    for role in (0, 1, -1):
        own = [
            gradient(model, lambda rank=rank, role=role: token_losses(model, rows_of(rank))[roles[rank] == role].sum())
            for rank in range(RANKS)
        ]
        each.append(sum(own) / RANKS)
    stacked = torch.stack(each)
    return stacked @ stacked.T


def ddp() -> nn.Module:
    return DistributedDataParallel(qwen(tied=False))


def fsdp2() -> nn.Module:
    model = qwen(tied=False)
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def target(model: nn.Module) -> Target:
    return Target(model, group_parameters(model).parameters, SPEAKERS, is_spread=True)


def concluded(engine: Engine, gram: Tensor | None) -> Found:
    """What is read from the mean of the ranks' sums, beside the truth."""
    sums = engine.sums()
    assert sums is not None
    dist.all_reduce(sums)
    reading = engine.conclude(sums / RANKS)
    if isinstance(reading, Unavailable):
        return {"reason": reading.reason}
    assert gram is not None
    there = norms(gram) > 0
    return {
        "norm": float((norms(reading.gram_KK)[there] / norms(gram)[there] - 1).abs().max()),
        "cosine": float((cosines(reading.gram_KK) - cosines(gram))[there][:, there].abs().max()),
        "norm_error": float(reading.norm_error),
        "cosine_error": float(reading.cosine_error),
        "covered": len(reading.covered),
        "influence": None if reading.influence_N is None else float(reading.influence_N.sum()),
    }


def mixed(rank: int, engine: Engine, model: nn.Module) -> Found:
    engine.begin(assign_roles(MIXED[rank], 2))
    token_losses(model, rows_of(rank)).sum().backward()
    engine.end()
    return concluded(engine, truth(MIXED))


def one_each(rank: int, engine: Engine, model: nn.Module, roles: Tensor) -> Found:
    """Two micro-batches; `roles` (RANKS, 2)."""
    for part in range(2):
        rows = slice(2 * part, 2 * part + 2)
        engine.begin(assign_roles(roles[rank, part].expand(2), 2))
        token_losses(model, rows_of(rank)[rows]).sum().backward()
        engine.end()
    return concluded(engine, truth(roles.repeat_interleave(2, 1)))


def unsynchronized(rank: int) -> Found:
    """FSDP2 that reduces the gradients of two micro-batches of different roles at once."""
    model = fsdp2()
    engine = Micro(target(model))
    for part in range(2):
        model.set_requires_gradient_sync(part == 1)
        engine.begin(assign_roles([part, part], 2))
        token_losses(model, rows_of(rank)[2 * part : 2 * part + 2]).sum().backward()
        engine.end()
    return concluded(engine, None)


def within(rank: int, model: nn.Module) -> Found:
    """Several roles in one sequence: whose each row's tokens are changes after the fifth."""
    roles = torch.cat([MIXED[:, :, None].expand(-1, -1, 5), 1 - MIXED[:, :, None].clamp(min=0).expand(-1, -1, 5)], 2)
    engine = Backwards(target(model))
    engine.begin(assign_roles(roles[rank], 2))
    token_losses(model, rows_of(rank)).sum().backward()
    engine.end()
    return concluded(engine, truth(roles[:, :, 1:]))


SAME = torch.tensor([[0, 1], [0, 1]])
OTHER = torch.tensor([[0, 1], [1, 0]])


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    found: dict[str, Found] = {}
    for name, make in (("ddp", ddp), ("fsdp2", fsdp2)):
        model = make()
        found[f"neutral_{name}"] = mixed(rank, Neutral(target(model), exact_every=0), model)
        model.zero_grad()
        found[f"exact_{name}"] = mixed(rank, Neutral(target(model)), model)
        model.zero_grad()
        found[f"micro_{name}"] = one_each(rank, Micro(target(model)), model, SAME)
        model.zero_grad()
        found[f"micro_{name}_other"] = one_each(rank, Micro(target(model)), model, OTHER)
        model.zero_grad()
        found[f"within_{name}"] = within(rank, model)
    found["micro_fsdp2_unsynchronized"] = unsynchronized(rank)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
