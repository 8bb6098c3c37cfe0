"""What follows from a Gram matrix, summed by hand."""

from __future__ import annotations

from math import inf, isnan, nan, sqrt

import pytest
import torch

from gradwatch.quantities.role_gradients import RoleGradients
from gradwatch.quantities.roles import UNASSIGNED, Speaker

SPEAKERS = (Speaker("solver", "0"), Speaker("solver", "1"), Speaker("verifier"), UNASSIGNED)
VECTORS = torch.tensor([[3.0, 0.0], [1.0, 4.0], [-2.0, 2.0], [0.0, 0.0]])


def gradients(vectors=VECTORS, counts=(2.0, 4.0, 2.0, 0.0)):
    return RoleGradients("exact", SPEAKERS, tuple(map(tuple, (vectors @ vectors.T).tolist())), counts=counts)


def test_the_norm_of_a_role_is_that_of_its_instances_sum():
    assert gradients().norm("solver") == pytest.approx(sqrt(32))
    assert gradients().norm("solver", "1") == pytest.approx(sqrt(17))


def test_shares_sum_to_one_and_may_be_negative():
    roles = gradients()
    # g = (2, 6): the verifier's (-2, 2) has ⟨g_k, g⟩ = 8 of ‖g‖² = 40.
    assert roles.share("verifier") == pytest.approx(8 / 40)
    assert roles.share("solver") + roles.share("verifier") == pytest.approx(1)
    assert gradients(torch.tensor([[3.0, 0], [0, 0], [-1.0, 0], [0, 0]])).share("verifier") == pytest.approx(-0.5)


def test_the_cosine_is_that_of_the_roles_sums():
    assert gradients().cosine("solver", "verifier") == pytest.approx((4 * -2 + 4 * 2) / sqrt(32 * 8))


@pytest.mark.parametrize(
    ("second", "coherence"),
    [((0.0, 3.0), 1.0), ((3.0, 0.0), 2.0), ((-3.0, 0.0), 0.0)],
    ids=["independent", "aligned", "opposed"],
)
def test_coherence_is_one_for_independent_and_their_number_for_aligned_instances(second, coherence):
    vectors = torch.tensor([(3.0, 0.0), second, (1.0, 1.0), (0.0, 0.0)])
    assert gradients(vectors).coherence("solver") == pytest.approx(coherence)
    assert gradients(vectors).instances("solver") == 2


def test_a_small_roles_norm_can_be_seen_per_share_of_the_tokens():
    assert gradients().norm_per_share("verifier") == pytest.approx(sqrt(8) * 8 / 2)


def test_a_role_that_said_nothing_is_absent():
    roles = gradients(torch.tensor([[3.0, 0], [1.0, 1], [0, 0], [0, 0]]), (1.0, 1.0, 0.0, 0.0))
    assert roles.roles == ("solver",)
    assert isnan(roles.cosine("solver", "verifier"))
    assert isnan(roles.norm_per_share("verifier"))


def test_a_role_that_spoke_without_a_gradient_is_there_with_norm_zero():
    roles = gradients(torch.tensor([[3.0, 0], [1.0, 1], [0, 0], [0, 0]]))
    assert "verifier" in roles.roles
    assert roles.norm("verifier") == 0


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_non_finite_gradient_stays_so(bad):
    vectors = VECTORS.clone()
    vectors[2, 0] = bad
    roles = gradients(vectors)
    assert not isnan(roles.norm("solver"))
    assert roles.norm("verifier") == bad or isnan(roles.norm("verifier"))
    assert isnan(roles.share("verifier"))


def test_a_square_that_a_sketch_made_negative_is_zero():
    assert RoleGradients("micro", (Speaker("a"),), ((-1e-9,),)).norm("a") == 0
