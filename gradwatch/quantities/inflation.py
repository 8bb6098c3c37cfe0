"""By how much one baseline for all roles inflates the gradient of each: F_k, from rewards that are pooled over steps.

Under advantages (r − μ)/σ with the mean and deviation of all rewards, E‖g_k‖² = F_k·E‖z_k‖² + Δ_k, z_k the role's score, with
F_k = (σ_k² + (μ_k − μ)²)/σ². Source: Dr. MAS (arXiv 2602.08847), lemma 4.2. Variances are those of populations (ddof=0), and
nothing is left out: with w_k the role's share of the rewards, Σ w_k·F_k = 1, so that only a rare role can be inflated.
`measured_inflation` tells what the gradients say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot, nan, sqrt

from gradwatch.quantities.per_role import OVERALL


@dataclass(frozen=True, slots=True)
class Spread:
    """How `count` finite rewards are spread; `std` is that of a population."""

    count: float
    mean: float
    std: float

    def __or__(self, other: Spread) -> Spread:
        """That of both together. Source: Chan, Golub and LeVeque (1983)."""
        count = self.count + other.count
        gap, share = other.mean - self.mean, other.count / count
        std = hypot(self.std * sqrt(1 - share), other.std * sqrt(share), gap * sqrt(share * (1 - share)))
        return Spread(count, self.mean + gap * share, std)


@dataclass(frozen=True, slots=True)
class Inflation:
    """F_k of one role. `share` is w_k, `mean_gap` μ_k − μ, `var_ratio` σ_k²/σ². `note` says what F_k cannot tell, and why."""

    ratio: float
    share: float
    mean_gap: float
    var_ratio: float
    note: str = ""

    def as_metrics(self) -> dict[str, float]:
        """Its numbers by their names in the catalogue."""
        return {"inflation_ratio": self.ratio, "mean_gap": self.mean_gap, "var_ratio": self.var_ratio}


@dataclass(frozen=True, slots=True)
class RewardPool:
    """The rewards of each role over any number of steps; those of all under the empty role."""

    spreads: Mapping[str, Spread] = field(default_factory=dict)

    def add(self, numbers: Mapping[str, Mapping[str, float]], metric: str = "reward") -> RewardPool:
        """The pool with one more step: what `measure_rewards(...).read()` gave. Non-finite rewards are no part of it."""
        found = {role: spread for role, values in numbers.items() if (spread := _spread_of(values, metric)) is not None}
        both = {role: self.spreads[role] | one if role in self.spreads else one for role, one in found.items()}
        return RewardPool({**self.spreads, **both})

    def inflation(self) -> dict[str, Inflation]:
        """F_k of every role that has a reward; NaN, with a note, where all rewards are the same or there is only one."""
        whole = self.spreads.get(OVERALL)
        if whole is None:
            return {}
        return {role: _inflation(role, one, whole) for role, one in self.spreads.items() if role != OVERALL}


def _spread_of(values: Mapping[str, float], metric: str) -> Spread | None:
    count = values.get(f"{metric}/count", 0.0) - values.get(f"{metric}/nonfinite", 0.0)
    return Spread(count, values[f"{metric}/mean"], values[f"{metric}/std"]) if count > 0 else None


def _inflation(role: str, own: Spread, whole: Spread) -> Inflation:
    share, gap = own.count / whole.count, own.mean - whole.mean
    if not whole.std * whole.std > 0:
        note = f"all {whole.count:g} rewards are {whole.mean:g}" if whole.count > 1 else "there is one reward"
        return Inflation(nan, share, gap, nan, f"{note}: F of {role!r} is not defined, there is no spread to divide by")
    note = f"{role!r} has one reward: its spread counts as 0" if own.count == 1 else ""
    ratio, var_ratio = hypot(own.std / whole.std, gap / whole.std) ** 2, (own.std / whole.std) ** 2
    return Inflation(ratio, share, gap, var_ratio, note)
