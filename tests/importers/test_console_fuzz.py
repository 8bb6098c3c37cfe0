"""Whatever bytes a console log holds, reading it ends, soon, without an error."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwatch.importers.base import Row
from gradwatch.importers.console import Console
from gradwatch.importers.source import Source

MEGABYTE = 1_000_000
BLANK = " " * 30
SEEDS = (
    f"  2%|▎ | 5/200 [00:17<12:05, 3.7s/it]\r{BLANK}\r{{'loss': 0.5, 'grad_norm': '0.1', 'epoch': 0.44}}\n",
    "{'loss': nan, 'kl': None, 'x': tensor(0.1, device='cuda:0'), 'y': np.float64(0.1)}\n",
    "\x1b[36m(TaskRunner pid=12)\x1b[0m step:7 - a(1e-3):np.float64(0.25) - c d:-1e-05 [repeated 7x across cluster]\n",
    "---------------\n| rollout/    |   |\n|    ep_len   | 1 |\n|    ep_rew   | 2 |\n---------------\n",
    "2025-11-07 10:26:34.540 | INFO | m:f:139 - iter=0000 reward=-107.7 ESS=0.59\n",
    " iteration 100/ 1000 | lm loss: 1.0E+00 | grad norm: 1.2 |\n",
    '[{"stream_name":"stdout","time":1.2,"data":"{\'loss\': 1.0}\\n"}\n,{"stream_name":"stderr","time":1.3,"data":"x"}\n]\n',
    '{"cells": [{"cell_type": "code", "outputs": [{"output_type": "stream", "name": "stdout", "text": ["step=1 loss=2"]}]}]}\n',
)
FRAGMENTS = st.sampled_from(
    [*SEEDS, *("\r", "\n", BLANK, "\x1b[A", "{'", "':", "}", "[", "|", " - ", "step:", "nan", "%|", "━", "\0")]
)


def read(content: bytes) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(content)
        return list(Console().rows(Source(path)))


def check(content: bytes) -> None:
    assert isinstance(Console().recognises(content), bool)
    for row in read(content):
        assert all(isinstance(value, float) for value in row.values.values())
        assert row.step is None or isinstance(row.step, int)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=3000))
def test_any_bytes(content: bytes) -> None:
    check(content)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAGMENTS, max_size=40))
def test_any_mixture_of_forms(parts: list[str]) -> None:
    check("".join(parts).encode())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=8))
def test_damaged_logs(seed: str, edits: list[tuple[int, bytes]]) -> None:
    content = seed.encode() * 3
    for place, patch in edits:
        content = content[:place] + patch + content[place + len(patch) + 1 :]
    check(content)


ENDLESS = (
    "{'", "{'a': ", "{'loss': 1, ", "{'a': tensor(", "a:", "a=", "|", "-", "step:1 - ", "step: 1 ", "%|", "1%| | 1/2 [",
    " ", "\r", " " * 12 + "\r", "\x1b[", "\x1b]", "\x1b[1;2", "(a pid=", "(", "nan ", "{", "━", "━1/2", "loss a b c d ",
    "INFO ", "1", "1,", "[", '"', ",", "_", "{\n", "'a': 1,\n", "loss a b c d e\n",
)  # fmt: skip


@pytest.mark.parametrize("piece", ENDLESS, ids=repr)
@pytest.mark.parametrize("start", ["", "{'loss': 1, "])
def test_an_endless_line_is_read_in_linear_time(piece: str, start: str) -> None:
    content = start + piece * (MEGABYTE // len(piece))
    before = time.process_time()
    rows = read(content.encode())
    assert time.process_time() - before < 5
    assert len(rows) < 100_000


def test_a_line_as_long_as_pairs_may_be_is_read_in_linear_time() -> None:
    lines = [start + (piece * 4000)[: 4000 - len(start)] for start, piece in itertools.product(("", "step 1 loss: "), ENDLESS)]
    before = time.process_time()
    read("\n".join(lines * 4).encode())
    assert time.process_time() - before < 5


def test_deep_nesting_raises_nothing() -> None:
    assert read(b'{"cells": [{"cell_type": ' + b"[" * 200_000) == []
    assert read(b'[{"stream_name":' + b"[" * 200_000) == []
