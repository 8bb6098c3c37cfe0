"""Two processes that train one model, each way of spreading its gradient in turn; rank 0 leaves what it measured in a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from gradwatch.errors import SettingsError
from gradwatch.quantities import GradNorms, Unavailable, group_parameters, measure_grad_norm

RANKS = 2


class Net(nn.Module):
    """Some sizes are odd, so that shards are uneven and that of the head on rank 1 is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
        self.head = nn.Linear(3, 1)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def batch(rank: int) -> Tensor:
    return torch.linspace(-1, 1, 20).view(4, 5) * (rank + 1)


def loss(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def truth(net: Net) -> dict[str, float]:
    """The norms of the mean of both ranks' losses, computed on one process in float64."""
    twin = copy.deepcopy(net).double()
    (sum(loss(twin, batch(rank).double()) for rank in range(RANKS)) / RANKS).backward()
    squares = {"body": 0.0, "head": 0.0}
    for name, one in twin.named_parameters():
        if one.grad is not None:
            squares[name.partition(".")[0]] += float(one.grad.square().sum())
    return {name: square**0.5 for name, square in {"": sum(squares.values()), **squares}.items()}


def measured(model: nn.Module) -> dict[str, float] | str:
    got = measure_grad_norm(group_parameters(model, depth=1))
    got = got if isinstance(got, Unavailable) else got.read()
    return got.as_metrics() if isinstance(got, GradNorms) else got.reason


def trained(rank: int, model: nn.Module) -> dict[str, float] | str:
    loss(model, batch(rank)).backward()
    return measured(model)


def ddp(rank: int, net: Net) -> dict[str, float] | str:
    return trained(rank, nn.parallel.DistributedDataParallel(net, find_unused_parameters=True))


def fsdp2(rank: int, net: Net) -> dict[str, float] | str:
    for layer in (net.body[0], net.body[2]):
        fully_shard(layer)
    return trained(rank, fully_shard(net))


def fsdp2_bf16(rank: int, net: Net) -> dict[str, float] | str:
    return trained(rank, fully_shard(net, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)))


def hybrid(rank: int, net: Net) -> dict[str, float] | str:
    """Replicated over both processes, sharded over one."""
    return trained(rank, fully_shard(net, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "parts"))))


def without_unused(got: dict[str, float] | str) -> dict[str, float] | str:
    """FSDP1 gives the optimizer real zeros for what no loss reached, as it shares one flat gradient with the rest."""
    assert isinstance(got, dict), got
    assert got.pop("unused") == 0.0
    return got


def fsdp1(rank: int, net: Net) -> dict[str, float] | str:
    return without_unused(trained(rank, FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))))


def fsdp1_copies(rank: int, net: Net) -> dict[str, float] | str:
    copies = FullyShardedDataParallel(
        net, use_orig_params=True, device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy.NO_SHARD
    )
    return without_unused(trained(rank, copies))


def fsdp1_flat(rank: int, net: Net) -> dict[str, float] | str:
    """One flat parameter a group: only the total can be compared."""
    got = trained(rank, FullyShardedDataParallel(net, device_id=torch.device("cpu")))
    return {"": got[""]} if isinstance(got, dict) else got


def tensor_parallel(rank: int, net: Net) -> dict[str, float] | str:
    """Both ranks see both batches; the first layer is split by columns, the second by rows, the rest is plain."""
    mesh = init_device_mesh("cpu", (2,))
    net.body = parallelize_module(net.body, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    (sum(loss(net, batch(one)) for one in range(RANKS)) / RANKS).backward()
    return measured(net)


def partial_gradient(rank: int, net: Net) -> dict[str, float] | str:
    """A replicated weight whose gradient is still a sum to be made: [3, 0] here and [0, 4] there."""
    mesh = init_device_mesh("cpu", (2,))
    weight = nn.Parameter(distribute_tensor(torch.zeros(2), mesh, [Replicate()]))
    weight.grad = DTensor.from_local(torch.tensor([[3.0, 0.0], [0.0, 4.0]][rank]), mesh, [Partial()])
    return measured(nn.ParameterDict({"weight": weight}))


def gradient_spread_alone(rank: int, net: Net) -> dict[str, float] | str:
    """Every rank holds the weight, but only its part of the gradient."""
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = DTensor.from_local(torch.tensor([[3.0], [4.0]][rank]), init_device_mesh("cpu", (2,)), [Shard(0)])
    return measured(nn.ParameterDict({"weight": weight}))


def one_gradient_here(rank: int, net: Net) -> dict[str, float] | str:
    """Only rank 1 has a gradient, an infinite one: no rank may say that there is none, nor wait for the other for ever."""
    mesh = init_device_mesh("cpu", (2,))
    weight = nn.Parameter(distribute_tensor(torch.zeros(4), mesh, [Shard(0)]))
    if rank:
        weight.grad = DTensor.from_local(torch.tensor([1.0, torch.inf]), mesh, [Shard(0)])
    return measured(nn.ParameterDict({"weight": weight}))


def not_yet(rank: int, net: Net) -> dict[str, float] | str:
    return measured(fully_shard(net))


def accumulating(rank: int, net: Net) -> dict[str, float] | str:
    """FSDP2 keeps the gradient to itself until it is told to reduce it."""
    model = fully_shard(net)
    model.set_requires_gradient_sync(False)
    return trained(rank, model)


def without_its_wrapper(rank: int, net: Net) -> dict[str, float] | str:
    FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))
    try:
        return measured(net)
    except SettingsError as error:
        return str(error)


WAYS: tuple[Callable[[int, Net], dict[str, float] | str], ...] = (
    ddp,
    fsdp2,
    fsdp2_bf16,
    hybrid,
    fsdp1,
    fsdp1_copies,
    fsdp1_flat,
    tensor_parallel,
    partial_gradient,
    gradient_spread_alone,
    one_gradient_here,
    not_yet,
    accumulating,
    without_its_wrapper,
)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(seconds=30))
    found: dict[str, object] = {}
    for way in WAYS:
        torch.manual_seed(0)
        net = Net()
        if "truth" not in found:
            found["truth"] = truth(net)
        found[way.__name__] = way(rank, net)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
