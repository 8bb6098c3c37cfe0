"""The modules that are tapped: where the model uses its parameters, and where what is measured there comes to lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from gradwatch.quantities.engines.engine import Target
from gradwatch.quantities.engines.operators import Facts
from gradwatch.quantities.engines.stores import Store, Stores
from gradwatch.quantities.engines.taps import Recipe
from gradwatch.quantities.engines.weight_uses import WeightUse, norm_eps, weight_uses


class Site(NamedTuple):
    """A use of parameters, their stores (None: not measured), and what `Tap` has to know of it."""

    use: WeightUse
    weight: Store | None
    bias: Store | None
    recipe: Recipe

    @property
    def stores(self) -> tuple[Store, ...]:
        """Those of its parameters."""
        return tuple(one for one in (self.weight, self.bias) if one is not None)


def sites(stores: Stores) -> Iterator[Site]:
    """The modules of the target's model that can be tapped."""
    for use in weight_uses(stores.target.model, stores.target.parameters):
        weight = None if use.weight is None else stores.all[use.weight]
        bias = None if use.bias is None else stores.all[use.bias]
        facts = (
            Facts(False, 0, 0, -1) if weight is None else Facts(weight.is_small, stores.sketch.width, weight.offset, weight.slot)
        )
        yield Site(
            use, weight, bias, _with_numbers(use.module, Recipe(use.kind, facts, -1 if bias is None else bias.slot, use.sizes))
        )


def tied(target: Target) -> set[int]:
    """Indices of the parameters that several modules hold."""
    holders = Counter(id(one) for module in target.model.modules() for one in module.parameters(recurse=False))
    return {index for index, member in enumerate(target.parameters) if holders[id(member.parameter)] > 1}


def _with_numbers(module: nn.Module, recipe: Recipe) -> Recipe:
    if isinstance(module, nn.Embedding):
        return recipe if module.padding_idx is None else recipe._replace(padding=module.padding_idx)
    if recipe.kind in ("layer_norm", "rms_norm"):
        return recipe._replace(eps=-1.0 if getattr(module, "eps", 0.0) is None else norm_eps(module, torch.float32))
    return recipe
