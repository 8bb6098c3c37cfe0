"""Groups of rollouts that share a baseline: their size, their prompts, and whether their rewards tell anything."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gradwatch.errors import SettingsError
from gradwatch.quantities.per_role import OVERALL, onto, owners_of, wide
from gradwatch.quantities.rewards import Numbers, numbers_of

Labels = Tensor | Sequence[Hashable]


class SpoiltGroup(NamedTuple):
    """A group that is left out of what is said of rewards: `nonfinite` of its `size` rewards are NaN, None or infinite."""

    group: Hashable
    role: str
    size: int
    nonfinite: int


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """The numbers of groups by role and metric key, those of all under the empty role; `spoilt` names those left out, by role."""

    numbers: dict[str, dict[str, float]]
    spoilt: tuple[SpoiltGroup, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class GroupReading:
    """Groups that are still on the device.

    Rows of `table` (int64, N columns) are the group, the prompt, the bits of the reward as float64, and, for each of `names` and
    for all, whether the rollout is the role's. `labels` are the groups as they were given, where the table holds their places in
    them.
    """

    names: tuple[str, ...]
    table: Tensor
    right: float
    wrong: float
    has_prompts: bool
    labels: tuple[Hashable, ...] | None = None

    def read(self) -> GroupStatistics:
        """The numbers, with one host sync."""
        group_N, prompt_N, bits_N, *owned = self.table.cpu().unbind(0)
        rewards_N = bits_N.view(torch.float64)
        numbers: dict[str, dict[str, float]] = {}
        spoilt: dict[str, list[tuple[int, int, int]]] = {}
        for role, owned_N in zip((*self.names, OVERALL), owned, strict=True):
            own = owned_N != 0
            if own.any():
                groups = _Groups.of(group_N[own], rewards_N[own])
                prompts = groups.prompts(prompt_N[own]) if self.has_prompts else {}
                numbers[role] = {**groups.sizes(), **prompts, **groups.rewards(self.right, self.wrong)}
                spoilt[role] = groups.spoilt()
        return GroupStatistics(numbers, tuple(self._spoilt(spoilt)))

    def _spoilt(self, by_role: dict[str, list[tuple[int, int, int]]]) -> Iterator[SpoiltGroup]:
        """The spoilt groups of each role, and those that are no role's."""
        of_roles = {group for role, rows in by_role.items() if role != OVERALL for group, _, _ in rows}
        for role, rows in by_role.items():
            for group, size, nonfinite in rows:
                if role != OVERALL or group not in of_roles:
                    yield SpoiltGroup(group if self.labels is None else self.labels[group], role, size, nonfinite)


def measure_groups(
    rewards: Numbers,
    groups: Labels,
    roles: Tensor | None = None,
    names: Sequence[str] = (),
    prompts: Labels | None = None,
    right: float = 1.0,
    wrong: float = 0.0,
) -> GroupReading:
    """Statistics of the groups that share a baseline: `rewards`, `groups` and `prompts` are (N,), one for each rollout.

    `groups` and `prompts` are whole numbers, or a sequence of anything that tells them apart (texts, hashes). A role's groups are
    of its own rollouts, those of all of every rollout. By role: `groups` (how many), `group_size/mean|min|max`,
    `frac_groups_of_one`, `groups_excluded` (those with a reward that is NaN, None or infinite, named by the reading) and, where
    prompts are given, `group_prompts/mean|max` (different ones in a group: 1 where it is sound). Of the groups of two and more
    whose rewards are all finite: `frac_reward_zero_std` (all the same, told by their extremes: 13 rewards of .99 are constant,
    whatever rounding makes of their deviation), `group_reward_std/mean|min` (of a sample, ddof=1, as trainers normalise),
    `frac_groups_all_right` (all from `right` up) and `frac_groups_all_wrong` (all down to `wrong`); absent where no group is such.

    Raises SettingsError where shapes are wrong.
    """
    rewards_N = wide(numbers_of(rewards))
    device = rewards_N.device
    if device.type == "mps":  # no float64 there
        rewards_N = rewards_N.cpu().double()
    owners = owners_of(roles, names, torch.ones_like(rewards_N, dtype=torch.bool))
    group_N, labels = _numbered(groups, rewards_N, "groups")
    prompt_N, _ = _numbered(groups if prompts is None else prompts, rewards_N, "prompts")
    table = torch.stack([group_N, prompt_N, rewards_N.view(torch.int64), *owners.owned_RM.long()])
    return GroupReading(owners.names, table, right, wrong, prompts is not None, labels)


def _numbered(given: Labels, like: Tensor, name: str) -> tuple[Tensor, tuple[Hashable, ...] | None]:
    """Labels as int64 beside the rewards, and what their numbers stand for, where they are not their own."""
    labels: tuple[Hashable, ...] | None = None
    if not isinstance(given, Tensor):
        places = {label: place for place, label in enumerate(dict.fromkeys(given))}
        given, labels = torch.tensor([places[label] for label in given], dtype=torch.int64), tuple(places)
    if given.shape != like.shape or given.is_floating_point():
        raise SettingsError(
            f"{name} of shape {tuple(given.shape)} and {given.dtype}: give whole numbers of shape {tuple(like.shape)}"
        )
    return onto(given.detach(), like.device).long(), labels


class _Groups(NamedTuple):
    """G groups of some rollouts, in this machine's memory: `group_N` is the place of each rollout's group in `ids_G`."""

    ids_G: Tensor
    group_N: Tensor
    rewards_N: Tensor
    size_G: Tensor
    nonfinite_G: Tensor

    @classmethod
    def of(cls, group_N: Tensor, rewards_N: Tensor) -> _Groups:
        ids_G, place_N, size_G = torch.unique(group_N, return_inverse=True, return_counts=True)
        nonfinite_G = torch.zeros_like(size_G).index_add_(0, place_N, (~rewards_N.isfinite()).long())
        return cls(ids_G, place_N, rewards_N, size_G, nonfinite_G)

    def sizes(self) -> dict[str, float]:
        size_G = self.size_G.double()
        return {
            "groups": float(len(size_G)),
            "group_size/mean": float(size_G.mean()),
            "group_size/min": float(size_G.min()),
            "group_size/max": float(size_G.max()),
            "frac_groups_of_one": _share(self.size_G == 1),
            "groups_excluded": float((self.nonfinite_G > 0).sum()),
        }

    def prompts(self, prompt_N: Tensor) -> dict[str, float]:
        pairs = torch.unique(torch.stack([self.group_N, prompt_N], 1), dim=0)
        different_G = torch.bincount(pairs[:, 0], minlength=len(self.ids_G)).double()
        return {"group_prompts/mean": float(different_G.mean()), "group_prompts/max": float(different_G.max())}

    def spoilt(self) -> list[tuple[int, int, int]]:
        """Group, size and number of non-finite rewards of the groups that have some."""
        at = self.nonfinite_G > 0
        return list(zip(self.ids_G[at].tolist(), self.size_G[at].tolist(), self.nonfinite_G[at].tolist(), strict=True))

    def rewards(self, right: float, wrong: float) -> dict[str, float]:
        """What the rewards of the groups that can be judged say."""
        judged_G = (self.size_G > 1) & (self.nonfinite_G == 0)
        if not judged_G.any():
            return {}
        low_G, high_G, std_G = self._extremes("amin")[judged_G], self._extremes("amax")[judged_G], self._std()[judged_G]
        return {
            "frac_reward_zero_std": _share(low_G == high_G),
            "group_reward_std/mean": float(torch.where(low_G == high_G, 0, std_G).mean()),
            "group_reward_std/min": float(torch.where(low_G == high_G, 0, std_G).min()),
            "frac_groups_all_right": _share(low_G >= right),
            "frac_groups_all_wrong": _share(high_G <= wrong),
        }

    def _extremes(self, which: str) -> Tensor:
        empty_G = torch.zeros(len(self.ids_G), dtype=torch.float64)
        return empty_G.scatter_reduce_(0, self.group_N, self.rewards_N, which, include_self=False)

    def _std(self) -> Tensor:
        empty_G = torch.zeros(len(self.ids_G), dtype=torch.float64)
        mean_G = empty_G.index_add(0, self.group_N, self.rewards_N) / self.size_G
        squares_G = empty_G.index_add(0, self.group_N, (self.rewards_N - mean_G[self.group_N]).square())
        return (squares_G / (self.size_G - 1)).sqrt()


def _share(true_G: Tensor) -> float:
    return float(true_G.double().mean())
