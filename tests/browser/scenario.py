"""A run of three roles whose searcher breaks: what the browser tests look at."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from uuid import uuid4

from gradwatch.client.http_transport import HttpTransport
from gradwatch.schema import Block, Checkpoint, Sample, Series
from gradwatch.wire import Batch, OpenRun, pack

ROLES = ("planner", "searcher", "verifier")
SPIKE, NAN, BOOM = 180, 220, 222
MARKUP = "<img src=x onerror=\"document.body.dataset.owned='yes'\"> <b>not bold</b>"


def step_values(step: int, seed: int = 0) -> Iterator[tuple[Series, float]]:
    """What the run logs at a step; the searcher's gradient spikes at `SPIKE` and is lost at `NAN`."""
    noise = random.Random(step * 1009 + seed)
    for at, role in enumerate(ROLES):
        sick = role == "searcher" and step >= NAN
        norm = (1.0 + 0.2 * at) * (1 + 3 * math.exp(-step / 15)) + noise.gauss(0, 0.07)
        if role == "searcher" and step == SPIKE:
            norm = 80.0
        if role == "searcher" and NAN <= step < NAN + 3:
            norm = math.inf if step == BOOM else math.nan
        reward = 0.2 + 0.6 * (1 - math.exp(-step / (60 + 30 * at))) + noise.gauss(0, 0.02)
        yield Series("grad_norm", f"{role}/grad_norm", role=role), norm
        yield Series("reward", f"{role}/reward/mean", role=role, stat="mean"), 0.02 if sick else reward
        yield Series("reward", f"{role}/reward/std", role=role, stat="std"), abs(noise.gauss(0.2, 0.02))
        yield Series("entropy", f"{role}/entropy", role=role), max(0.05, 2.2 - step / 160 + 0.2 * at + noise.gauss(0, 0.03))
        yield Series("response_length", f"{role}/response_length", role=role), 240 + 60 * at + noise.gauss(0, 8)
        yield Series("grad_norm", f"{role}/grad_norm_h.0", role=role, scope="h.0"), norm * 0.4
    yield Series("loss", "loss"), 1.5 * math.exp(-step / 90) + noise.gauss(0, 0.02)
    yield Series("learning_rate", "learning_rate"), 1e-5 * min(1.0, step / 30)
    yield Series("my_own/thing", "my_own/thing"), noise.random()
    if step % 25 == 0:
        yield Series("accuracy", "eval/accuracy", stream="eval"), 0.3 + 0.5 * (1 - math.exp(-step / 100))


def block(steps: range, seed: int = 0, until: float | None = None) -> Block:
    """The points of some steps, one second apart, the last one at `until`."""
    points = Block()
    until = time.time() if until is None else until
    for step in steps:
        for series, value in step_values(step, seed):
            points.add(series, step, value, until - (steps[-1] - step))
    return points


def samples(steps: range) -> list[Sample]:
    """Three samples a step; the searcher's hold markup, its last one is long."""
    return [
        Sample(
            step=step,
            role=role,
            agent=f"{role}-0",
            turn=at,
            group=f"q{step}",
            prompt=f"Question {step}: what is {step} + {at}?",
            output=(MARKUP if role == "searcher" else f"The answer is {step + at}.") + (" and so on" * 200 if at == 2 else ""),
            rewards={"correct": 1.0 if step < NAN else 0.0, "format": 0.5},
            advantage=0.31 - at * 0.2,
            prompt_tokens=21,
            output_tokens=9 + at,
            format_valid=at != 1,
        )
        for step in steps
        for at, role in enumerate(ROLES)
    ]


def checkpoints(steps: range) -> list[Checkpoint]:
    """A checkpoint every 50 steps."""
    return [Checkpoint(step=one, uri=f"out/step-{one}", metrics={"accuracy": 0.3 + one / 1000}) for one in steps if one % 50 == 0]


class Trainer:
    """A training process that logs over HTTP; every call returns when the collector has committed."""

    def __init__(self, url: str, run: str, name: str = "", project: str = "search", roles: tuple[str, ...] = ROLES) -> None:
        self._transport = HttpTransport(url)
        self._run = run
        self._process = uuid4().hex
        declared = {role: {"policy": "shared"} for role in roles}
        self._transport.open(OpenRun(id=run, process=self._process, name=name or run, project=project, roles=declared))

    def log(self, points: Block, samples: list[Sample] | None = None, checkpoints: list[Checkpoint] | None = None) -> None:
        """Send a batch."""
        self._send(
            Batch(id=uuid4().hex, process=self._process, columns=pack(points), samples=samples or [], checkpoints=checkpoints or [])
        )

    def finish(self, status: str = "finished") -> None:
        """End the process's part of the run."""
        self._send(Batch(id=uuid4().hex, process=self._process, status=status))

    def close(self) -> None:
        """Release the connection."""
        self._transport.close()

    def _send(self, batch: Batch) -> None:
        self._transport.send(self._run, batch)
