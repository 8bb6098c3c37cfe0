"""Whose gradient norms are judged for spikes."""

from __future__ import annotations

import pytest

from gradwatch.detectors.norm_spike import NormSpike
from gradwatch.schema import Series


@pytest.mark.parametrize(
    ("series", "judged"),
    [
        (Series("grad_norm"), True),
        (Series("grad_norm", role="solver"), True),
        (Series("grad_norm", role="solver", agent="solver-1"), True),
        (Series("grad_norm", policy="critic"), True),
        (Series("grad_norm", role="solver", scope="maze"), True),
        (Series("grad_norm", scope="layers.3"), False),
    ],
)
def test_a_modules_norm_tells_where_a_spike_came_from_and_is_none_itself(series, judged):
    assert NormSpike().reads(series) is judged
