"""The examples do what they say, and their kept logs are what they train."""

from __future__ import annotations

import ast
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gradwatch.cli.report import Report, diagnose

EXAMPLES = Path(__file__).parents[2] / "examples"
SICK, HEALTHY = EXAMPLES / "solver_verifier.log", EXAMPLES / "solver_verifier_healthy.log"
MISTAKE_STEP = 240
FINDINGS = {
    ("norm_spike", "verifier"),
    ("reward_collapse", "solver"),
    ("reward_collapse", "verifier"),
    ("val_cliff", ""),
}


def run(script: str, *arguments: str, folder: Path = EXAMPLES) -> str:
    """What a script prints; it must not warn."""
    command = [sys.executable, "-W", "error", str(folder / script), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "100"}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rows(log: Path) -> list[dict[str, float]]:
    return [ast.literal_eval(one) for one in re.findall(r"\{.*\}", log.read_text(encoding="utf-8"))]


def report(log: Path) -> Report:
    (one,) = diagnose(log)
    return one


@pytest.fixture(scope="module", params=[SICK, HEALTHY], ids=["sick", "healthy"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A kept log and a new one of the same training."""
    kept: Path = request.param
    new = tmp_path_factory.mktemp("trained") / kept.name
    run("solver_verifier.py", "--out", str(new), *(["--healthy"] if kept == HEALTHY else []))
    return kept, new


def test_training_again_gives_the_kept_log_s_rows(trained: tuple[Path, Path]) -> None:
    kept, new = map(rows, trained)
    assert [(row["step"], list(row)) for row in new] == [(row["step"], list(row)) for row in kept]


def test_training_again_begins_with_the_kept_log_s_numbers(trained: tuple[Path, Path]) -> None:
    """Other machines round differently, which a sampled action amplifies later on."""
    kept, new = map(rows, trained)
    for one, again in zip(kept, new, strict=True):
        if one["step"] <= 20:
            assert again == pytest.approx(one, rel=0.2, abs=0.1)


def test_training_again_fails_or_succeeds_like_the_kept_log(trained: tuple[Path, Path]) -> None:
    kept, new = map(report, trained)
    assert new.sick == kept.sick
    if new.sick:
        assert failures(new) >= FINDINGS


def failures(one: Report) -> set[tuple[str, str]]:
    return {(found.kind, found.role) for found in one.findings if found.severity != "info" and found.start_step >= MISTAKE_STEP}


def test_the_healthy_log_is_healthy_and_learns_to_the_end() -> None:
    one = report(HEALTHY)
    assert not one.findings
    assert one.best is not None
    assert one.best.step > 300
    assert one.best.value > 0.85


def test_the_failing_log_is_found_in_its_roles_from_the_mistake_on() -> None:
    one = report(SICK)
    assert failures(one) == FINDINGS | {("norm_spike", "")}
    assert all(MISTAKE_STEP <= found.start_step <= MISTAKE_STEP + 10 for found in one.findings)


def test_the_spike_is_the_verifier_s_and_at_the_very_step_of_the_mistake() -> None:
    spikes = [found for found in report(SICK).findings if found.kind == "norm_spike"]
    assert {found.start_step for found in spikes} == {MISTAKE_STEP}
    assert {found.severity for found in spikes} == {"critical"}
    assert "solver" not in {found.role for found in spikes}


def test_the_best_step_lies_before_the_mistake() -> None:
    best = report(SICK).best
    assert best is not None
    assert best.metric == "eval/accuracy"
    assert 150 < best.step < MISTAKE_STEP
    assert best.value > 0.8


def test_every_row_of_the_log_has_its_own_step() -> None:
    """The bar and the row's `step` agree: 400 steps and an evaluation every 10."""
    one = report(SICK)
    assert (one.first_step, one.last_step, one.run.rows, one.run.format) == (1, 400, 440, "hf_console_dict")
    assert one.run.warnings == ()


def test_the_failure_is_one_of_training_not_of_writing() -> None:
    """Up to the mistake both logs are the same; the first step after it differs in the verifier's gradient alone."""
    sick, healthy = (({row["step"]: row for row in rows(log) if "loss" in row}) for log in (SICK, HEALTHY))
    assert all(sick[step]["grad_norm"] == healthy[step]["grad_norm"] for step in range(1, MISTAKE_STEP))
    first, twin = sick[MISTAKE_STEP], healthy[MISTAKE_STEP]
    assert first["train/solver/grad_norm"] == twin["train/solver/grad_norm"]
    assert first["train/verifier/reward"] == twin["train/verifier/reward"]
    assert first["train/verifier/grad_norm"] > 100 * twin["train/verifier/grad_norm"]


def test_a_few_steps_can_be_trained(tmp_path: Path) -> None:
    log = tmp_path / "few.log"
    assert str(log) in run("solver_verifier.py", "--steps", "5", "--out", str(log))
    assert [row["step"] for row in rows(log)] == [1, 2, 3, 4, 5]


def test_the_logs_demo_says_both_verdicts_and_ends() -> None:
    shown = run("diagnose_logs.py", "--exit")
    healthy, sick = shown.index("healthy: no problem found"), shown.index("sick: ")
    assert healthy < sick
    assert "best step 230" in shown
    assert ".venv/bin/gradwatch diagnose YOUR_LOG" in shown
    assert "make test" in shown


def test_the_logs_demo_ends_by_itself_without_a_terminal() -> None:
    assert "empty to end" not in run("diagnose_logs.py")


def test_the_logs_demo_says_so_where_the_public_logs_are_not_there(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "checkout" / "examples")
    assert "../shared/corpus does not lie beside" in run("diagnose_logs.py", "--exit", folder=tmp_path / "checkout" / "examples")


def test_the_logs_demo_asks_a_terminal_for_a_log_until_the_line_is_empty() -> None:
    """A wrong path is answered with a message, a log with its diagnosis."""
    mine, ours = os.openpty()
    command = [sys.executable, str(EXAMPLES / "diagnose_logs.py")]
    with subprocess.Popen(command, stdin=ours, stdout=ours, stderr=ours, env={**os.environ, "COLUMNS": "100"}) as demo:
        os.close(ours)
        shown = ""
        for typed in ("no/such.log", str(HEALTHY), ""):
            shown += said_until("(empty to end): ", mine)
            os.write(mine, f"{typed}\n".encode())
        shown += said_until("make test", mine)
        assert demo.wait(30) == 0
    os.close(mine)
    assert "no/such.log: " in shown
    assert shown.count("healthy: no problem found") == 2


def test_the_live_demo_finds_what_was_injected_at_its_very_steps() -> None:
    """Its training runs in another process and logs over HTTP; the page and /metrics are served meanwhile."""
    shown = run("demo.py", "--exit")
    assert "The page of this run: http://127.0.0.1:" in shown
    assert shown.count("found at that very step") == 2
    assert "the run finished at step 300" in shown
    assert 'gradwatch_findings_total{kind="nonfinite",project="demo",role="solver"' in shown


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_the_live_demo_ends_when_told_to_and_leaves_nothing_behind(told: signal.Signals, tmp_path: Path) -> None:
    """The training in the other process, which nobody else ends, included."""
    command = [sys.executable, "-u", str(EXAMPLES / "demo.py")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as demo:
        assert demo.stdout is not None
        shown = "".join(iter(demo.stdout.readline, "\n"))
        demo.send_signal(told)
        shown += demo.stdout.read()  # until the training has closed it too
        assert demo.wait(30) == 130
    assert "Traceback" not in shown
    assert list(tmp_path.glob("gradwatch-demo-*")) == []


def said_until(end: str, terminal: int) -> str:
    """What a program writes to a terminal up to and with `end`."""
    said = b""
    while end.encode() not in said:
        assert select.select([terminal], [], [], 30)[0], f"waited for {end!r} after {said[-500:]!r}"
        said += os.read(terminal, 4096)
    return said.decode()
