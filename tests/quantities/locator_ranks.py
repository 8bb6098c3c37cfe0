"""Two processes that train one model: what one of them finds that is not finite, and how far a step moves sharded weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from gradwatch.quantities import group_parameters
from gradwatch.quantities.nonfinite_locator import NonfiniteLocator
from gradwatch.quantities.update_ratio import UpdateRatio, UpdateRatioReading

RANKS = 2


class Net(nn.Module):
    """An odd number of rows, so that shards are uneven."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def spoil(tensor: Tensor) -> Tensor:
    return tensor * torch.nan


def locate(rank: int) -> dict[str, object]:
    """DDP; on rank 1 alone, an output is not finite in the first step, and a gradient in the second."""
    torch.manual_seed(0)
    net, found = Net(), {}
    model = nn.parallel.DistributedDataParallel(net)
    locator = NonfiniteLocator(model, group_parameters(model).parameters, rank)
    locator.arm()
    for kind in ("forward", "backward"):
        layer = net.body[0] if kind == "forward" else net.body[2]
        handle = layer.register_forward_hook(lambda _, __, out, kind=kind: _spoiled(out, kind), prepend=True) if rank else None
        model(torch.ones(4, 5)).sum().backward()
        own = locator.reading()
        found[kind] = {"own": asdict(own.read()), "all": asdict(own.over().read())}
        locator.clear()
        model.zero_grad()
        if handle is not None:
            handle.remove()
    return found


def _spoiled(output: Tensor, kind: str) -> Tensor | None:
    if kind == "forward":
        return spoil(output)
    output.register_hook(spoil)
    return None


def _spread(net: Net, way: str) -> nn.Module:
    if way == "fsdp2":
        fully_shard(net.head)
        return fully_shard(net)
    net.body = parallelize_module(net.body, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return net


def ratios(way: str) -> dict[str, object]:
    """One step of SGD on weights that are spread, and on a twin that is whole."""
    torch.manual_seed(0)
    twin, net, found = Net(), Net(), {}
    net.load_state_dict(twin.state_dict())
    for name, model in (("truth", twin), ("measured", _spread(net, way))):
        ratio = UpdateRatio(group_parameters(model, depth=1))
        ratio.before()
        model(torch.ones(4, 5)).square().sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.01).step()
        got = ratio.after()
        found[name] = got.read() if isinstance(got, UpdateRatioReading) else got.reason
    return found


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(seconds=30))
    found = locate(rank) | {way: ratios(way) for way in ("fsdp2", "tensor_parallel")}
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
