"""What single sequences' gradients tell: the noise scale of the batch, and by how much advantages inflate each role's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gradwatch.quantities.measured_inflation import measure_inflation_by_scores
from gradwatch.quantities.noise_scale import NoiseScaleAverage, noise_scale_of_parts
from gradwatch.quantities.role_gradients import RoleGradients


class SequenceFigures:
    """Made of each record whose engine saw single sequences, on one process: it needs all of the batch's."""

    def __init__(self) -> None:
        self._noise = NoiseScaleAverage()

    def noise_scale(self, roles: RoleGradients) -> float | None:
        """Tr Σ/‖G‖² in sequences, averaged over steps; None where it is not defined."""
        if len(roles.squares) < 2:
            return None
        whole = sum(map(sum, roles.gram))
        average = self._noise.update(noise_scale_of_parts(roles.squares, whole, len(roles.squares)))
        return None if average.why_undefined() else average.value


def inflation(roles: RoleGradients, samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By role: E[A²s]/E[s] as it was measured, beside E[A²] and their difference Δ_k, from samples that carry their advantage.

    s is the squared norm of a sequence's score gradient, ‖g_i‖²/A². A sequence with advantage 0 has no gradient to tell s by, and
    is left out. Source: lemma 4.2 of Dr. MAS (arXiv 2602.08847).
    """
    known = [
        (float(one["advantage"]), roles.squares[one["sequence"]], str(one.get("role") or ""))
        for one in samples
        if one.get("advantage") and one["sequence"] is not None and 0 <= one["sequence"] < len(roles.squares)
    ]
    names = tuple(dict.fromkeys(role for *_, role in known if role))
    if not names:
        return {}
    advantages_N = torch.tensor([advantage for advantage, *_ in known], dtype=torch.float64)
    squares_N = torch.tensor([square for _, square, _ in known], dtype=torch.float64)
    indices_N = torch.tensor([names.index(role) if role else -1 for *_, role in known])
    return measure_inflation_by_scores(advantages_N, squares_N / advantages_N.square(), indices_N, names).read()
