"""Which parameters of a model are measured, and in which groups of modules they are reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from gradwatch.errors import SettingsError
from gradwatch.quantities.module_names import clean_names
from gradwatch.quantities.name_patterns import matching
from gradwatch.quantities.sharding import Sharding, flat_shardings, sharding_of

MAX_GROUPS = 64
OTHER = "(other)"


class Member(NamedTuple):
    """A parameter under its name without wrappers."""

    name: str
    parameter: nn.Parameter
    sharding: Sharding


@dataclass(frozen=True, slots=True, eq=False)
class ParameterGroups:
    """Parameters by group of modules, both in the model's order; `notes` says in words what was merged or counted once."""

    names: tuple[str, ...]
    members: tuple[tuple[Member, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[Member, ...]:
        """Every parameter, group after group."""
        return tuple(one for group in self.members for one in group)


class _Found(NamedTuple):
    parameter: nn.Parameter
    names: list[str]  # without wrappers; more than one where the weight is tied
    raw: list[str]

    def among(self, names: set[str]) -> bool:
        return not names.isdisjoint((*self.names, *self.raw))


def group_parameters(
    model: nn.Module,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    depth: int | None = None,
    max_groups: int = MAX_GROUPS,
) -> ParameterGroups:
    """The parameters of a model that are measured, grouped by the first `depth` components of their module's name.

    Of `layers.0.attn.weight`, depth 1 is `layers`, 2 is `layers.0`; None is the deepest that makes at most `max_groups` groups. A
    depth that makes more is lowered until they fit; the rest of what is too many even at depth 1 is merged into `(other)`. A
    parameter of the model itself is a group of its own. Patterns (see `matching`) are tried on names with and without wrappers;
    `include` empty is everything, `exclude` wins. A tied weight is one parameter, under the first of its names, matched by any.

    Call it on the model as it is trained: wrapped, sharded, with its adapters. Frozen parameters are kept, as they may be unfrozen.
    Raises SettingsError where a pattern matches nothing, nothing is left, or nothing that is left can have a gradient.
    """
    if max_groups < 2 or (depth is not None and depth < 1):
        raise SettingsError(f"depth={depth}, max_groups={max_groups}: depth must be at least 1 and max_groups at least 2")
    chosen = _chosen(_found(model), include, exclude)
    labels, merged = _labels([one.names[0] for one in chosen], depth, max_groups)
    flat = flat_shardings(model)
    groups: dict[str, list[Member]] = {}
    for label, one in zip(labels, chosen, strict=True):
        member = Member(one.names[0], one.parameter, sharding_of(one.names[0], one.parameter, flat))
        groups.setdefault(label, []).append(member)
    tied = [f"{' = '.join(one.names)}: one weight, counted once, in {one.names[0]!r}" for one in chosen if len(one.names) > 1]
    return ParameterGroups(tuple(groups), tuple(map(tuple, groups.values())), (*merged, *tied))


def _found(model: nn.Module) -> list[_Found]:
    found: dict[int, _Found] = {}
    raw = dict(model.named_parameters(remove_duplicate=False))
    clean = clean_names(raw)
    for name, parameter in raw.items():
        one = found.setdefault(id(parameter), _Found(parameter, [], []))
        one.names.append(clean[name])
        one.raw.append(name)
    return list(found.values())


def _chosen(found: list[_Found], include: Sequence[str], exclude: Sequence[str]) -> list[_Found]:
    names = list(dict.fromkeys(name for one in found for name in (*one.names, *one.raw)))
    taken = matching("include", include, names) if include else set(names)
    left_out = matching("exclude", exclude, names)
    chosen = [one for one in found if one.among(taken) and not one.among(left_out)]
    if not chosen:
        raise SettingsError(f"no parameter is left to measure of {len(found)}: include={list(include)}, exclude={list(exclude)}")
    if not any(one.parameter.requires_grad for one in chosen):
        raise SettingsError(f"none of the {len(chosen)} parameters to measure requires a gradient, such as {chosen[0].names[0]!r}")
    return chosen


def _labels(names: list[str], depth: int | None, max_groups: int) -> tuple[list[str], list[str]]:
    """The group of each name, and what there is to say of it."""
    wanted = depth or max(name.count(".") for name in names) or 1
    for level in range(wanted, 0, -1):
        labels = [_module(name, level) for name in names]
        if len(set(labels)) <= max_groups:
            said = f"depth {wanted} makes more than {max_groups} groups: depth {level} is used, which makes {len(set(labels))}"
            return labels, [said] if depth and level < depth else []
    kept = set(list(dict.fromkeys(labels))[: max_groups - 1])
    said = f"more than {max_groups} modules: all but the first {max_groups - 1} are merged into {OTHER!r}"
    return [label if label in kept else OTHER for label in labels], [said]


def _module(name: str, depth: int) -> str:
    path = name.rpartition(".")[0]
    return ".".join(path.split(".")[:depth]) or name
