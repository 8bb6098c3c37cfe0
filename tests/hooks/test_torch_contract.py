"""The hook contract on a training loop of plain PyTorch."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from contracts.hook_contract import HookContract
from contracts.hook_job import Job, loss_of
from loops.plain import PlainTorch

from gradwatch_hooks.torch import watch


class TestPlainTorch(HookContract):
    adapter: ClassVar = PlainTorch()


def test_a_backward_that_failed_costs_no_later_record() -> None:
    job, norms = Job(None), []
    net = job.net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with watch(net, optimizer=optimizer, on_record=lambda record: norms.append(record.grad_norm)):
        loss = loss_of(net(job.batch(0)))
        failing = net.body[0].weight.register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        failing.remove()
        for _ in range(2):
            optimizer.zero_grad()
            (loss_of(net(job.batch(0))) * 1000).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()
    assert len(norms) == 2
    assert min(norms) > 100
