"""What the gradients say of F_k: the measured ratio, and the covariance that the prediction leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradwatch.quantities.per_role import RoleReading, mean_by_role, onto, owners_of, reading_of, sum_by_role, wide
from gradwatch.quantities.rewards import numbers_of


def measure_inflation_by_scores(
    advantages: Tensor, score_squares: Tensor, roles: Tensor | None = None, names: Sequence[str] = ()
) -> RoleReading:
    """The terms of lemma 4.2 by role, from sequences' advantages A (N,) and squared norms s (N,) of their scores z = ∇ log π.

    The gradient of a sequence is A·z, and E[A²s] = E[A²]·E[s] + Δ. `measured_inflation` = E[A²s]/E[s]; `predicted_inflation` =
    E[A²], which is F_k exactly where A = (r − μ)/σ has the mean and deviation (ddof=0) of all; `inflation_covariance` = Δ_k, the
    covariance of A² and s; `inflation_covariance_share` = Δ_k/E[A²s]. Δ_k is not small once a policy sharpens. Sequences of which
    A or s is not finite are left out and counted in `measured_inflation/nonfinite`. A ratio without anything to divide by is NaN.
    Source: Dr. MAS (arXiv 2602.08847), lemma 4.2 in full.
    """
    squares_N = wide(numbers_of(advantages, "advantages")).square()
    scores_N = wide(onto(numbers_of(score_squares, "score_squares"), squares_N.device))
    owners = owners_of(roles, names, torch.ones_like(squares_N, dtype=torch.bool))
    finite = owners.only(squares_N.isfinite() & scores_N.isfinite())
    square_R, score_R = mean_by_role(squares_N, finite), mean_by_role(scores_N, finite)
    product_R = mean_by_role(squares_N * scores_N, finite)
    deviations_RN = (squares_N - square_R[:, None]) * (scores_N - score_R[:, None])
    delta_R = torch.where(finite.owned_RM, deviations_RN, 0).sum(1) / finite.owned_RM.sum(1)
    left_out = sum_by_role(torch.ones_like(squares_N), owners.only(~finite.owned_RM[-1]))
    return reading_of(
        {
            "measured_inflation": product_R / score_R,
            "predicted_inflation": square_R,
            "inflation_covariance": delta_R,
            "inflation_covariance_share": delta_R / product_R,
            "measured_inflation/nonfinite": left_out,
        },
        owners,
    )
