"""The commands around a running collector, as a user calls them."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import gradwatch
from gradwatch.cli.app import app
from gradwatch.store import open_store

RUNNER = CliRunner()
SECONDS = 30.0
NORMS = [1.0, 1.1, 0.9, 1.2] * 15


def run(*words: object) -> Result:
    return RUNNER.invoke(app, [str(word) for word in words])


def answer(*words: object) -> Any:
    done = run(*words, "--format", "json")
    assert done.exception is None or done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited {SECONDS:.0f} s for {what}"
        time.sleep(0.05)


@contextmanager
def started(*words: object, ready: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command in a process of its own, once it has said something that matches `ready`; ends it by SIGTERM."""
    command = [sys.executable, "-u", "-m", "gradwatch", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment)
    assert process.stdout is not None
    said = ""
    while not (found := re.search(ready, said)):
        line = process.stdout.readline()
        assert line, f"it ended: {said}"
        said += line
    try:
        yield process, found[0]
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A collector that the commands ask."""
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))
    with started("up", "--data", tmp_path / "data", "--port", 0, ready=r"http://127\.0\.0\.1:\d+") as (_, address):
        monkeypatch.setenv("GRADWATCH_URL", address)
        yield address


def train(tmp_path: Path, name: str = "live", **settings: Any) -> str:
    """A run with a rising accuracy, a NaN near its end, and two checkpoints."""
    with gradwatch.init(project="p1", name=name, quiet=True, **settings) as one:
        for step, norm in enumerate(NORMS, 1):
            one.log({"grad_norm": math.nan if step == 55 else norm, "eval/accuracy": min(step, 50) / 60}, step=step)
            if step in (20, 58):
                (tmp_path / f"step-{step}").mkdir(exist_ok=True)
                (tmp_path / f"step-{step}" / "weights").write_text(str(step))
                one.log_checkpoint(str(tmp_path / f"step-{step}"), step=step)
    return str(one.id)


def test_reading_commands_ask_the_collector_that_runs(url: str, tmp_path: Path) -> None:
    run_id = train(tmp_path)
    (listed,) = answer("runs")["runs"]
    assert (listed["id"], listed["name"], listed["project"], listed["status"]) == (run_id, "live", "p1", "finished")
    until(lambda: bool(answer("findings", "live")["findings"]), "a finding")
    assert [(one["kind"], one["start_step"]) for one in answer("findings", run_id)["findings"]] == [("nonfinite", 55)]
    assert "became NaN at step 55" in run("findings", "live").stdout
    assert answer("export", "live", "--to", tmp_path / "out.csv")["points"] == 2 * len(NORMS)


def test_the_best_step_is_the_collector_s_and_the_page_s(url: str, tmp_path: Path) -> None:
    run_id = train(tmp_path)
    picked = answer("best", "live", "--copy-to", tmp_path / "best")
    with urllib.request.urlopen(f"{url}/api/v1/runs/{run_id}/best") as told:
        assert json.loads(told.read())["best"] == picked["best"]
    assert (picked["best"]["step"], picked["best"]["metric"]) == (60, "eval/accuracy")
    assert picked["checkpoint"]["step"] == 58
    assert (tmp_path / "best" / "step-58" / "weights").read_text() == "58"
    assert "checkpoint of step 58" in run("best", "live", "--explain").stdout
    assert run("best", "live", "--metric", "grad_norm", "--mode", "min").exit_code == 0
    unknown = run("best", "live", "--metric", "nope")
    assert "no metric 'nope'" in str(unknown.exception)


def test_a_run_without_a_measure_has_no_best_step(url: str, tmp_path: Path) -> None:
    with gradwatch.init(name="bare", quiet=True) as one:
        one.log({"my/own": 1.0}, step=1)
        one.log_checkpoint(str(tmp_path), step=1)
    done = run("best", "bare", "--copy-to", tmp_path / "copy")
    assert done.exit_code == 1
    assert "no best step" in done.stdout
    assert not (tmp_path / "copy").exists()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store that runs in this process log to."""
    monkeypatch.setenv("GRADWATCH_MODE", "inprocess")
    monkeypatch.setenv("GRADWATCH_DATA", str(tmp_path / "store"))
    monkeypatch.setenv("GRADWATCH_DIR", str(tmp_path / "spool"))
    return tmp_path / "store"


def test_where_all_steps_are_equally_good_no_checkpoint_is_kept(store: Path, tmp_path: Path) -> None:
    with gradwatch.init(name="flat", quiet=True) as one:
        for step in range(5):
            one.log({"eval/accuracy": 0.7}, step=step)
            one.log_checkpoint(str(tmp_path), step=step)
    assert run("best", "flat", "--data", store, "--copy-to", tmp_path / "copy").exit_code == 1
    told = answer("best", "flat", "--data", store)
    assert (told["best"], told["checkpoint"], told["copies"]) == (None, None, [])


def test_a_live_run_is_reported_without_the_rows_that_only_a_file_has(store: Path) -> None:
    with gradwatch.init(name="live", quiet=True) as one:
        one.log({"loss": 1.0}, step=3)
    said = run("findings", "live", "--data", store).stdout
    assert said.splitlines()[:2] == ["live  steps 3–3", "  healthy: no problem found in 1 metric"]


def test_a_store_without_runs_says_so(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert run("runs", "--data", tmp_path).stdout == "no runs yet\n"
    assert run("runs", "--data", tmp_path, "--project", "mine").stdout == "no runs of the project 'mine'\n"


@pytest.mark.parametrize("port", ["-1", "65536", "abc"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    assert run("up", "--port", port).exit_code == 2


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "http://127.0.0.1:abc", "http://127.0.0.1:65536", "http://127.0.0.1:0"])
def test_an_address_that_is_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_URL", url)
    assert "must be an address such as http://127.0.0.1:8420" in str(run("runs").exception)


def test_import_takes_project_and_folder_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_PROJECT", "mine")
    monkeypatch.setenv("GRADWATCH_DATA", str(tmp_path / "store"))
    log = tmp_path / "one.jsonl"
    log.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    assert [one["project"] for one in answer("import", log)["runs"]] == ["mine"]
    assert (tmp_path / "store").is_dir()


def test_ctrl_c_while_the_commands_are_loaded_leaves_no_traceback() -> None:
    code = """
        import sys

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "gradwatch.cli.app":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from gradwatch.cli import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_the_engines_are_not_loaded_to_ask_a_collector() -> None:
    code = "import sys, gradwatch.cli.app; print({'duckdb', 'sqlalchemy', 'numpy', 'fastapi', 'dash'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_growing_log_is_followed_without_the_training_s_help(url: str, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "train.jsonl"
    log.parent.mkdir()
    with started("follow", log.parent, "--project", "followed", ready="sending to the collector"), log.open("w") as file:
        for step, norm in enumerate([*NORMS, 50.0], 1):
            file.write(json.dumps({"step": step, "grad_norm": norm}) + "\n")
            file.flush()
        until(lambda: any(one["health"] == "critical" for one in answer("runs")["runs"]), "the spike of the followed log")
    (listed,) = answer("runs", "--project", "followed")["runs"]
    (found,) = answer("findings", listed["id"])["findings"]
    assert (found["kind"], found["start_step"]) == ("norm_spike", len(NORMS) + 1)


def test_up_follows_a_folder_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text("".join(json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 40)))
    words = ("up", "--data", tmp_path / "data", "--port", 0, "--follow", logs)
    with started(*words, ready=r"following a.*", GRADWATCH_DIR=str(tmp_path / "spool")) as (_, line):
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address is not None
        monkeypatch.setenv("GRADWATCH_URL", address[0])
        until(lambda: [one["last_step"] for one in answer("runs")["runs"]] == [39], "the log's last step")


def test_a_log_is_followed_without_any_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_URL", "http://127.0.0.1:9")
    log = tmp_path / "alone.jsonl"
    log.write_text("".join(json.dumps({"step": step, "grad_norm": norm}) + "\n" for step, norm in enumerate([*NORMS, math.nan], 1)))
    environment = {"GRADWATCH_DIR": str(tmp_path / "spool")}
    with started("follow", log, "--data", tmp_path / "data", ready="nonfinite", **environment) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    (listed,) = answer("runs", "--data", tmp_path / "data")["runs"]
    assert (listed["name"], listed["last_step"], listed["health"]) == ("alone", len(NORMS) + 1, "warning")


def test_an_offline_run_is_synced_once(url: str, tmp_path: Path) -> None:
    code = (
        "import gradwatch\n"
        "with gradwatch.init(name='offline', mode='offline', id='off-1', quiet=True) as run:\n"
        "    for step in range(100): run.log({'loss': float('nan') if step == 7 else step}, step=step)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    assert answer("runs")["runs"] == []
    told = answer("sync")
    assert [(one["run"], one["points"], one["duplicates"]) for one in told["runs"]] == [("off-1", 100, 0)]
    (listed,) = answer("runs")["runs"]
    assert (listed["id"], listed["status"], listed["sequence"]) == ("off-1", "finished", 100)
    assert "nothing waits" in run("sync").stdout


def test_import_says_what_to_do_while_a_collector_has_the_store(url: str, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    done = run("import", log, "--data", tmp_path / "data")
    assert done.exit_code == 2
    assert "gradwatch follow PATH" in done.output


def test_a_collector_open_to_the_network_needs_a_key(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradwatch", "up", "--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"GRADWATCH_API_KEY": ""})
    assert done.returncode == 2
    assert "GRADWATCH_API_KEY" in done.stderr
    assert not (tmp_path / "data").exists()


def test_where_nothing_runs_and_nothing_is_kept_both_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWATCH_URL", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    done = run("runs")
    assert re.search(r"no collector answers at http://127.0.0.1:9, and .*there is no store", str(done.exception))
