"""The time that engines take."""

from __future__ import annotations

import pytest
import torch

from gradwatch.quantities.engines.clock import Clock


def test_the_clock_adds_up_its_blocks_also_those_that_fail() -> None:
    ticks = iter([10.0, 12.5, 20.0, 21.0, 30.0, 31.0])
    clock = Clock(lambda: next(ticks))
    with clock:
        pass
    with pytest.raises(ZeroDivisionError), clock:
        _ = 1 / 0
    assert clock.take() == 3.5
    with clock:
        pass
    assert clock.take() == 1.0
    assert clock.take() == 0.0


def test_a_block_within_a_block_is_part_of_it() -> None:
    ticks = iter([10.0, 15.0])
    clock = Clock(lambda: next(ticks))
    with clock, clock:
        pass
    assert clock.take() == 5.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="times a CUDA device")
def test_on_a_device_its_own_time_is_taken_and_not_that_of_the_queue_before_it() -> None:
    clock, big = Clock(), torch.randn(8192, 8192, device="cuda")
    for _ in range(20):
        big @ big
    with clock:
        big.sum()
    torch.cuda.synchronize()
    taken = clock.take()
    assert isinstance(taken, list)
    assert 0 < sum(start.elapsed_time(end) for start, end in taken) < 50
