"""The noise scale against a distribution whose mean and covariance are known, and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradwatch.errors import SettingsError
from gradwatch.quantities.noise_scale import NoiseScale, NoiseScaleAverage, noise_scale, noise_scale_of_parts

squares = st.floats(0, 1e6)


@given(signal=st.floats(0.01, 100), noise=st.floats(0.01, 100), small=st.integers(1, 64), more=st.integers(1, 64))
def test_expected_squares_give_the_signal_and_the_noise_back(signal: float, noise: float, small: int, more: int) -> None:
    big = small + more
    got = noise_scale(signal + noise / small, small, signal + noise / big, big)
    assert got.signal == pytest.approx(signal, rel=1e-6, abs=1e-9)
    assert got.noise == pytest.approx(noise, rel=1e-6, abs=1e-9)
    assert got.value == pytest.approx(noise / signal, rel=1e-4)


def test_by_hand_two_opposite_examples_are_all_noise() -> None:
    got = noise_scale(1.0, 1, 0.0, 2)
    assert got == NoiseScale(signal=-1.0, noise=2.0)
    assert math.isnan(got.value)
    assert "no gradient is left" in got.why_undefined()


def test_by_hand_equal_examples_have_no_noise() -> None:
    assert noise_scale(4.0, 1, 4.0, 8) == NoiseScale(4.0, 0.0)
    assert noise_scale(4.0, 1, 4.0, 8).value == 0.0


def test_the_average_over_steps_finds_the_noise_scale_of_a_known_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    mean_P, sigma, batch = torch.full((50,), 0.2), 0.5, 16
    average = NoiseScaleAverage(decay=0.999)
    for _ in range(1500):
        examples_BP = mean_P + sigma * torch.randn(batch, 50, generator=generator)
        small = examples_BP.square().sum(1).mean().item()
        average.update(noise_scale(small, 1, examples_BP.mean(0).square().sum().item(), batch))
    assert average.current.value == pytest.approx(50 * sigma**2 / mean_P.square().sum().item(), rel=0.05)


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])


def test_what_micro_batches_add_tells_the_same_as_gradients_of_both_sizes() -> None:
    torch.manual_seed(0)
    model, x_BI = nn.Linear(6, 1), torch.randn(8, 6)
    parts = [gradient(model, model(one).square().mean()) for one in x_BI.chunk(4)]
    whole = gradient(model, model(x_BI).square().mean())
    expected = noise_scale(sum(one.square().sum().item() for one in parts) / 4, 2, whole.square().sum().item(), 8)
    added = [(one / 4).square().sum().item() for one in parts]
    assert noise_scale_of_parts(added, whole.square().sum().item(), 8) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_makes_nan_and_says_so(bad: float) -> None:
    for got in (noise_scale(bad, 1, 1.0, 2), noise_scale(2.0, 1, bad, 2)):
        assert math.isnan(got.value)
        assert "not finite" in got.why_undefined()


@given(squares, squares)
def test_a_value_is_never_negative_and_never_raises(small: float, big: float) -> None:
    got = noise_scale(small, 1, big, 4)
    assert math.isnan(got.value) == bool(got.why_undefined())
    assert math.isnan(got.value) or got.value >= 0


def test_one_part_alone_tells_nothing() -> None:
    assert math.isnan(noise_scale_of_parts([3.0], 3.0, 8).value)


def test_the_average_leaves_out_steps_that_are_not_finite_and_has_no_pull_to_zero() -> None:
    average = NoiseScaleAverage()
    assert math.isnan(average.current.value)
    assert average.update(NoiseScale(2.0, 6.0)) == pytest.approx((2.0, 6.0))
    assert average.update(NoiseScale(math.nan, 1.0)) == pytest.approx((2.0, 6.0))
    assert average.update(NoiseScale(2.0, 6.0)).value == pytest.approx(3.0)


@pytest.mark.parametrize(("small", "big"), [(0, 4), (4, 4), (8, 4)])
def test_batch_sizes_that_tell_nothing_are_refused(small: int, big: int) -> None:
    with pytest.raises(SettingsError, match="smaller than the second"):
        noise_scale(1.0, small, 1.0, big)


def test_a_decay_of_one_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"decay=1\.0"):
        NoiseScaleAverage(1.0)
