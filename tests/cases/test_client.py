"""Public reports about loggers inside a training process, from there to what is read back."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cases.site import Site, serving

import gradwatch

SYNC = """
import sys
from pathlib import Path
from gradwatch.client.http_transport import HttpTransport
from gradwatch.client.sync import sync
sync(Path(sys.argv[1]), lambda: HttpTransport(sys.argv[2]))
"""


def outside_pytest() -> dict[str, str]:
    """Under pytest a wrong call raises, so that tests find it; training processes run without it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}


def test_a_network_that_swallows_everything_freezes_no_step(site: Site, tmp_path: Path) -> None:
    """clearml#43: the listener takes connections and never answers; every call returns, and what was logged comes later."""
    code = (
        "import gradwatch, sys\n"
        "run = gradwatch.init(id='r', url=sys.argv[1], quiet=True, flush_seconds=1)\n"
        "for step in range(500): run.log({'loss': float(step)}, step=step)\n"
        "print('trained', flush=True)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run([sys.executable, "-c", code, url], check=True, capture_output=True, text=True, timeout=30)
        assert done.stdout == "trained\n"
    subprocess.run([sys.executable, "-c", SYNC, str(tmp_path / "spool"), site.url], check=True)
    assert sorted(site.curve("r", "loss")) == list(range(500))


def test_a_tracker_that_fails_kills_no_training(site: Site) -> None:
    """neptune-client#754: whatever is logged, and whatever happens to the collector, the process ends as it would without us."""
    code = (
        "import gradwatch, logging\n"
        "logging.disable(logging.CRITICAL)\n"
        "class Bad:\n"
        "    def __float__(self): raise RuntimeError('no')\n"
        "    def __array__(self, *a, **k): raise RuntimeError('no')\n"
        "    def item(self): raise RuntimeError('no')\n"
        "run = gradwatch.init(id='r', quiet=True)\n"
        "for bad in (Bad(), object(), 'text', {'a': Bad()}, [Bad()], 10**400, b'x', lambda: 0): run.log({'x': bad}, step=1)\n"
        "run.log('no mapping', step='no step'); run.log_samples(3); run.log_checkpoint(None, step='x'); run.log_samples([None])\n"
        "run.log({'loss': 1.0}, step=2)\n"
        "run.finish(); run.finish(); run.log({'late': 1.0})\n"
        "print('trained')\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=outside_pytest())
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert site.curve("r", "loss") == {2: 1.0}


def test_forked_data_loader_workers_and_spawned_processes_neither_hang_nor_lose_anything(site: Site, tmp_path: Path) -> None:
    """wandb#12079, #2233: forked DataLoader workers deadlock; an mp.spawn's exit hangs."""
    script = tmp_path / "training.py"
    script.write_text(
        "import multiprocessing, gradwatch\n"
        "import torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, at):\n"
        "        gradwatch.log({f'worker/{at}': float(at)}, step=at)\n"
        "        return at\n"
        "def child(number):\n"
        "    with gradwatch.init(id='r', quiet=True) as run: run.log({f'child/{number}': 1.0}, step=0)\n"
        "if __name__ == '__main__':\n"
        "    run = gradwatch.init(id='r', quiet=True)\n"
        "    loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context='fork')\n"
        "    seen = [int(one) for one in loader]\n"
        "    run.log({'seen': len(seen)}, step=0)\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    children = [spawn.Process(target=child, args=(number,)) for number in range(2)]\n"
        "    [one.start() for one in children]; [one.join(60) for one in children]\n"
        "    assert [one.exitcode for one in children] == [0, 0]\n"
        "    run.finish()\n"
    )
    done = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    keys = {one.series.source_key for one in site.store.curves("r")}
    assert keys == {"seen", *(f"worker/{at}" for at in range(8)), "child/0", "child/1"}
    assert site.store.state("r").attempt == 1


def test_eight_jobs_and_a_collector_that_says_429_lose_nothing_and_show_their_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb#7883: of eight jobs two runs were absent. Retry-After is honoured, and what waits can be seen."""
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))
    with serving(tmp_path / "data", room=20_000) as site:

        def job(number: int) -> int:
            run = gradwatch.init(id=f"job-{number}", url=site.url, quiet=True)
            seen = 0
            for step in range(200):
                run.log({f"m{key}": float(step) for key in range(20)}, step=step)
                seen = max(seen, sum(run.backlog))
            assert run.flush(60)
            assert sum(run.backlog) == 0
            run.finish()
            return seen

        with ThreadPoolExecutor(8) as pool:
            backlogs = list(pool.map(job, range(8)))
        assert all(backlogs)
        assert {one.info.id: one.sequence for one in site.store.states()} == {f"job-{number}": 4000 for number in range(8)}
        assert site.collector.vitals().refused_requests_total["busy"] > 0


def test_what_is_logged_of_a_large_model_is_bounded(site: Site) -> None:
    """wandb#3701: watching everything made summaries of 10 MB. An array is kept as six numbers, whatever its size."""
    torch = pytest.importorskip("torch")
    gradient = torch.full((1000, 1000), 0.5)
    gradient[0, 0] = math.nan
    with gradwatch.init(id="r", quiet=True) as run:
        run.log({"gradient": gradient}, step=1)
    assert site.store.state("r").sequence == 6
    stats = {one.series.stat: one.values[0] for one in site.store.curves("r")}
    assert stats == {"mean": 0.5, "std": 0.0, "min": 0.5, "max": 0.5, "count": 1e6, "nonfinite": 1.0}
