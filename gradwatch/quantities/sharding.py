"""Where the rest of a gradient is: the process groups over which squares have to be summed for the norm of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Partial, Replicate

from gradwatch.errors import SettingsError


class Sharding(NamedTuple):
    """How a parameter is spread: over each of `groups`, its processes hold disjoint parts. `device` is the groups' own."""

    groups: tuple[ProcessGroup, ...] = ()
    device: torch.device | None = None


WHOLE = Sharding()
FSDP1 = "FullyShardedDataParallel"


def is_dtensor(tensor: Tensor | None) -> TypeGuard[DTensor]:
    """Whether a tensor is spread over a device mesh (FSDP2, tensor parallelism)."""
    return isinstance(tensor, DTensor)


def sharding_of(name: str, parameter: nn.Parameter, flat: Mapping[int, Sharding]) -> Sharding:
    """The sharding of one parameter; `flat` is `flat_shardings(model)`.

    Replicated mesh dimensions are no part of it, nor are dimensions of size 1. Raises SettingsError for a parameter of FSDP1 whose
    FullyShardedDataParallel module is not part of the model that was given.
    """
    if is_dtensor(parameter):
        return _of_mesh(parameter)
    if _is_flat(parameter) and id(parameter) not in flat:
        raise SettingsError(
            f"parameter {name!r} belongs to a FullyShardedDataParallel module that is not part of the model given here; "
            "give the outermost wrapped model"
        )
    return flat.get(id(parameter), WHOLE)


def _of_mesh(parameter: DTensor) -> Sharding:
    mesh = parameter.device_mesh
    spread = [
        dim
        for dim, placement in enumerate(parameter.placements)
        if not isinstance(placement, Replicate | Partial) and mesh.size(dim) > 1
    ]
    return Sharding(tuple(mesh.get_group(dim) for dim in spread), torch.device(mesh.device_type)) if spread else WHOLE


def flat_shardings(model: nn.Module) -> dict[int, Sharding]:
    """The sharding of each parameter under FSDP1, by the parameter's `id`."""
    if not any(map(_is_flat, model.parameters())):
        return {}
    # Slow to import, and already imported wherever a parameter is FSDP1's.
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy  # noqa: PLC0415

    found: dict[int, Sharding] = {}
    # Outer modules come first, so the innermost one that holds a parameter decides.
    for module in model.modules():
        if isinstance(module, FullyShardedDataParallel):
            group = module.process_group
            groups = () if group is None or module.sharding_strategy == ShardingStrategy.NO_SHARD else (group,)
            found.update({id(one): Sharding(groups, module.compute_device) for one in module.parameters() if _is_flat(one)})
    return found


def flat_parameters(model: nn.Module) -> list[nn.Parameter]:
    """What FSDP1 differentiates by: the gradient hooks of the parameters that it flattened into these never fire."""
    handles = [getattr(module, "_handle", None) for module in model.modules() if type(module).__name__ == FSDP1]
    return [handle.flat_param for handle in handles if handle is not None]


def _is_flat(parameter: nn.Parameter) -> bool:
    # FSDP1 marks the parameters that it flattens, with use_orig_params and without.
    return bool(getattr(parameter, "_fsdp_flattened", False))
