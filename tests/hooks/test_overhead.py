"""Which steps are measured, so that role gradients keep to their share of the time."""

from __future__ import annotations

import torch

from gradwatch.quantities.engines.clock import Clock
from gradwatch_hooks.watching import overhead
from gradwatch_hooks.watching.overhead import Overhead
from gradwatch_hooks.watching.spread import Spread


def measured_steps(monkeypatch, costs: list[float], step: float = 1.0, most: float = 0.1) -> list[int]:
    """The steps that are measured where a step takes `step` seconds and the n-th measurement `costs[n]` (the last from then on)."""
    now, measured, taken = [0.0], [], []
    clock = Clock()
    monkeypatch.setattr(overhead, "CLOCK", clock)
    monkeypatch.setattr(overhead.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(clock, "take", lambda: taken.pop() if taken else 0.0)
    budget, is_measured = Overhead(most, Spread(None, torch.device("cpu"))), True
    for number in range(40):
        cost = costs[min(len(measured), len(costs) - 1)] if is_measured else 0.0
        taken.append(cost)
        measured += [number] if is_measured else []
        now[0] += step + cost
        is_measured = budget.next_step(is_measured).measure
    return measured


def test_setting_an_engine_up_is_not_held_against_it(monkeypatch):
    assert measured_steps(monkeypatch, [5.0, 0.01]) == list(range(40))


def test_what_is_dear_at_every_step_is_measured_rarely(monkeypatch):
    steps = measured_steps(monkeypatch, [0.5])
    assert steps[:2] == [0, 1]
    # 0.5 s in 10 % of the time: one step in about five.
    assert 7 <= len(steps) <= 11
