"""Compiled models are measured in one graph, watched before they are compiled or before their first call."""

from __future__ import annotations

import pytest
import torch
from quantities.engines.slow_twin import Pass, measure, off, separate_gradients, target
from torch import nn
from torch._dynamo.utils import counters

from gradwatch.quantities.engines.exact import Exact
from gradwatch.quantities.engines.split import Split
from gradwatch.quantities.engines.tapped import Tapped


@pytest.mark.parametrize(("kind", "before"), [(Exact, True), (Split, False)])
def test_a_compiled_model_is_one_graph_and_is_measured(kind: type[Tapped], before: bool) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(9, 8), nn.RMSNorm(8), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.Linear(8, 2)
    )
    engine = kind(target(model, 3)) if before else None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    engine = engine or kind(target(model, 3))
    batches = [torch.randint(0, 9, (4, 5)) for _ in range(3)]
    counts = []
    for speakers in ([0, 0, 2, 2], [2, 0, 1, 0], [1, 1, 1, 1]):
        passes = [Pass(lambda ids=ids: compiled(ids).square().flatten(1).sum(1), speakers) for ids in batches[:2]]
        plain = [Pass(lambda ids=ids: model(ids).square().flatten(1).sum(1), speakers) for ids in batches[:2]]
        reading = measure(engine, passes, 3)
        counts.append(counters["stats"]["unique_graphs"])
        engine.clear()
        truth = separate_gradients(target(model, 3), plain)
        assert off(reading, truth) <= 2e-6
        assert len(reading.covered) == 8
    assert counts == [1, 2, 2]  # rows that lie together, and rows that have to be gathered
