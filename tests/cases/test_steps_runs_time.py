"""Public reports about steps, runs and time: the input of each, from a training process to what is read back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from cases.site import Site

import gradwatch

QUIET = {"quiet": True}


def test_inference_at_step_8073_then_training_at_step_0_is_accepted(site: Site) -> None:
    """wandb#10628: every stream has its own step axis, and steps come in any order."""
    with gradwatch.init(id="r", **QUIET) as run:
        run.log({"eval/accuracy": 0.5}, step=8073)
        run.log({"loss": 2.0}, step=0)
        run.log({"loss": 1.0}, step=2)
        run.log({"loss": 1.5}, step=1)
    assert site.curve("r", "eval/accuracy") == {8073: 0.5}
    assert site.curve("r", "loss") == {0: 2.0, 1: 1.5, 2: 1.0}


def test_a_crash_at_1000_and_a_restart_at_500_are_two_attempts(site: Site) -> None:
    """wandb#6728: the newest attempt is shown by default, the old one is kept."""
    for first, last in ((990, 1000), (500, 510)):
        code = (
            "import gradwatch, os\n"
            "run = gradwatch.init(id='r', quiet=True)\n"
            f"for step in range({first}, {last} + 1): run.log({{'loss': float(step)}}, step=step)\n"
            "assert run.flush()\n"
            "os.kill(os.getpid(), 9)\n"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    state = site.store.state("r")
    assert (state.attempt, state.last_step, state.status) == (2, 510, "running")
    assert [one.status for one in site.store.attempts("r")] == ["interrupted", "running"]
    assert max(site.curve("r", "loss", attempt=1)) == 1000
    assert sorted(site.curve("r", "loss", attempt=2)) == list(range(500, 511))


def test_resuming_at_an_earlier_step_rewrites_and_keeps_both(site: Site) -> None:
    """SwanLab#1318, #830: the same step twice is no error; the last write wins, and the audit has both."""
    with gradwatch.init(id="r", **QUIET) as run:
        run.log({"loss": 3.0}, step=5)
        run.log({"loss": 9.0, "reward": 1.0}, step=4)
        run.log({"loss": 2.0}, step=5)
        run.log({"entropy": 0.5}, step=5)
    assert site.curve("r", "loss") == {4: 9.0, 5: 2.0}
    assert site.curve("r", "entropy") == {5: 0.5}
    written = [point.value for _, block in site.store.replay("r") for point in block if point.series.metric == "loss"]
    assert written == [3.0, 9.0, 2.0]


def test_ctrl_c_keeps_what_was_logged_and_marks_the_run_interrupted(site: Site, tmp_path: Path) -> None:
    """SwanLab#1261: the run was "still running" and its buffer lost."""
    code = (
        "import gradwatch, os, signal\n"
        "run = gradwatch.init(id='r', quiet=True)\n"
        "for step in range(500): run.log({'loss': float(step)}, step=step)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "import time; time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert len(site.curve("r", "loss")) == 500
    assert site.store.state("r").status == "interrupted"


def test_an_agent_that_is_not_called_has_no_values_and_a_call_frequency_of_0(site: Site) -> None:
    """Its keys vanish for a step: absent is not zero, and what says that it was not called is."""
    with gradwatch.init(id="r", **QUIET) as run:
        for step in range(6):
            called = step != 3
            run.log({"call_frequency": float(called), "reward": 0.5 if called else None}, step=step, role="search")
    reward, calls = site.curve("r", "reward"), site.curve("r", "call_frequency")
    assert sorted(reward) == [0, 1, 2, 4, 5]
    assert calls == {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0, 5: 1.0}


def test_a_resumed_segment_that_drops_keys_invents_no_zeros(site: Site) -> None:
    with gradwatch.init(id="r", **QUIET) as run:
        run.log({"loss": 1.0, "kl": 0.1}, step=1)
    with gradwatch.init(id="r", **QUIET) as run:
        run.log({"loss": 0.9}, step=2)
    assert site.curve("r", "kl", attempt=1) == {1: 0.1}
    assert site.curve("r", "kl", attempt=2) == {}
