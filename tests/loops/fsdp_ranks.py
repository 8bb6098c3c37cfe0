"""Two processes that train one model sharded over them; rank 0 leaves the norms that were recorded in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from contracts.hook_job import Job, loss_of
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard

from gradwatch_hooks.torch import watch

RANKS = 2
ACCUMULATION = 3


def sharded(net: nn.Module, **policy: Any) -> nn.Module:
    """FSDP2, with a part of the model for a group of its own."""
    fully_shard(net.body, **policy)
    return fully_shard(net, **policy)


def flat(net: nn.Module) -> nn.Module:
    """FSDP1."""
    return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))


def bf16(net: nn.Module) -> nn.Module:
    return sharded(net, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def bf16_checkpointed(net: nn.Module) -> nn.Module:
    """Activations of the body are computed again in the backward."""
    net.body = checkpoint_wrapper(net.body)
    return bf16(net)


@contextmanager
def unsynced(model: Any) -> Iterator[None]:
    """Backwards within sum nothing over the processes."""
    if isinstance(model, FullyShardedDataParallel):
        with model.no_sync():
            yield
        return
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


def recorded(job: Job, wrap: Callable[[nn.Module], nn.Module], is_last_synced: bool = True) -> tuple[float | None, str]:
    """The norm of one step and why there is none: all micro-batches but the last are added up on each process."""
    model = wrap(job.net())
    optimizer = torch.optim.SGD(model.parameters(), job.learning_rate)
    with watch(model, optimizer=optimizer, on_record=lambda record: None) as watcher:
        for micro in job.micro_batches:
            is_last = micro == job.micro_batches[-1]
            with nullcontext() if is_last and is_last_synced else unsynced(model):
                (loss_of(model(job.batch(micro))).float() / job.accumulation).backward()
        if is_last_synced:
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
        else:
            watcher.emit()
        assert watcher.last is not None
        return watcher.last.grad_norm, watcher.last.why


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS, timeout=timedelta(seconds=30)
    )
    job = Job(None, steps=1, accumulation=ACCUMULATION, rank=rank, ranks=RANKS)
    found = {wrap.__name__: recorded(job, wrap) for wrap in (sharded, flat, bf16, bf16_checkpointed)}
    # With FSDP1 the optimizer itself fails on such gradients.
    found["unsynced"] = recorded(job, sharded, is_last_synced=False)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
