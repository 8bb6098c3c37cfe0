"""The commands, as a user calls them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gradwatch.cli.app import app

RUNNER = CliRunner()
NORMS = [1.0, 1.1, 0.9, 1.2] * 10


def run(*words: object) -> Result:
    return RUNNER.invoke(app, [str(word) for word in words])


def log(path: Path, norms: list[float], **more: list[float]) -> Path:
    rows = [
        {
            "step": step,
            "loss": 1 / step,
            "grad_norm": norm,
            "epoch": step / 10,
            **{key: values[step - 1] for key, values in more.items()},
        }
        for step, norm in enumerate(norms, 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    return log(tmp_path / "sick.jsonl", [*NORMS, 50.0, *NORMS, math.nan])


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return log(tmp_path / "healthy.jsonl", NORMS * 2)


def report(*words: object) -> dict[str, Any]:
    runs = json.loads(run("diagnose", *words, "--format", "json").stdout)["runs"]
    assert len(runs) == 1
    one = runs[0]
    assert isinstance(one, dict)
    return one


def test_a_healthy_log_exits_with_0(healthy: Path) -> None:
    done = run("diagnose", healthy)
    assert done.exit_code == 0
    assert "healthy" in done.stdout


def test_a_sick_log_exits_with_1_and_says_what_where_and_what_to_do(sick: Path) -> None:
    done = run("diagnose", sick)
    assert done.exit_code == 1
    assert "sick: 2 findings, 1 of them critical; the earliest is norm_spike at step 41" in done.stdout
    for said in ("spiked to 50 at step 41", "→ look at the samples", "▔", "×"):
        assert said in done.stdout


def test_the_json_report_is_the_public_contract(sick: Path) -> None:
    one = report(sick)
    assert {key: one[key] for key in ("run", "source", "format", "rows", "first_step", "last_step")} == {
        "run": "sick", "source": str(sick), "format": "jsonl", "rows": 82, "first_step": 1, "last_step": 82,
    }  # fmt: skip
    assert one["metrics"] == ["epoch", "grad_norm", "loss"]
    assert one["best_checkpoint"] is None
    assert one["warnings"] == []
    spike = one["findings"][0]
    assert (spike["kind"], spike["detector"], spike["severity"], spike["role"]) == ("norm_spike", "norm_spike", "critical", "")
    assert (spike["metric"], spike["source_key"], spike["scope"]) == ("grad_norm", "grad_norm", "")
    assert (spike["start_step"], spike["end_step"], spike["start_epoch"], spike["end_epoch"]) == (41, 41, 4.1, 4.1)
    assert spike["evidence"]["peak"] == 50.0
    assert spike["message"]
    assert spike["suggestion"]


def test_json_holds_no_bare_nan(tmp_path: Path) -> None:
    path = log(tmp_path / "inf.jsonl", [math.inf] * 5)
    text = run("diagnose", path, "--format", "json").stdout
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"bare {name}"))


def test_the_best_step_is_named_with_its_reason(tmp_path: Path) -> None:
    path = log(tmp_path / "best.jsonl", NORMS, **{"eval/accuracy": [min(at, 60 - at) / 40 for at in range(40)]})
    best = report(path)["best_checkpoint"]
    assert best["step"] == 31
    assert best["metric"] == "eval/accuracy"
    assert "held-out" in best["reason"]
    assert "best step 31" in run("diagnose", path).stdout


def test_a_folder_is_searched_and_what_is_no_log_is_passed_over(sick: Path, healthy: Path) -> None:
    (sick.parent / "notes.md").write_text("# nothing to see")
    (sick.parent / "empty.log").write_text("")
    done = run("diagnose", sick.parent, "--format", "json")
    assert done.exit_code == 1
    assert [one["run"] for one in json.loads(done.stdout)["runs"]] == ["healthy", "sick"]


def test_of_many_checkpoints_only_the_newest_state_is_read(tmp_path: Path) -> None:
    for step in (5, 10, 100):
        folder = tmp_path / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": at, "loss": 1.0, "epoch": 0.1} for at in range(1, step + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    one = report(tmp_path)
    assert (one["run"], one["rows"]) == ("outputs", 100)


def test_the_report_can_go_to_a_file(sick: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert run("diagnose", sick, "--format", "json", "--out", out).exit_code == 1
    assert json.loads(out.read_text())["runs"][0]["run"] == "sick"
    text = tmp_path / "report.txt"
    run("diagnose", sick, "--out", text)
    assert "norm_spike" in text.read_text()


def test_the_format_is_recognised_from_content_not_from_the_name(sick: Path) -> None:
    other = sick.with_name("looks_like.csv")
    other.write_bytes(sick.read_bytes())
    assert report(other)["format"] == "jsonl"


def test_an_imported_run_is_listed_found_and_exported(sick: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = run("import", sick, "--project", "p1", "--data", data)
    assert done.exit_code == 0
    assert "imported" in done.stdout
    runs = json.loads(run("runs", "--data", data, "--format", "json").stdout)["runs"]
    assert [(one["name"], one["project"], one["health"], one["rows"]) for one in runs] == [("sick", "p1", "critical", 82)]
    found = json.loads(run("findings", "sick", "--data", data, "--format", "json").stdout)["findings"]
    assert [(one["kind"], one["status"]) for one in found] == [("norm_spike", "resolved"), ("nonfinite", "open")]
    csv = tmp_path / "out.csv"
    assert run("export", "sick", "--to", csv, "--data", data).exit_code == 0
    assert len(csv.read_text().splitlines()) == 1 + 82 * 3


def test_importing_a_file_twice_keeps_one_run(sick: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("import", sick, "--data", data)
    again = json.loads(run("import", sick, "--data", data, "--format", "json").stdout)["runs"]
    assert [one["new"] for one in again] == [False]
    assert len(json.loads(run("runs", "--data", data, "--format", "json").stdout)["runs"]) == 1


def test_import_finds_what_diagnose_finds(sick: Path, tmp_path: Path) -> None:
    run("import", sick, "--data", tmp_path / "data")
    stored = json.loads(run("findings", "sick", "--data", tmp_path / "data", "--format", "json").stdout)["findings"]
    direct = report(sick)["findings"]
    kept = [{key: value for key, value in one.items() if key in direct[0]} for one in stored]
    assert sorted(kept, key=lambda one: one["start_step"]) == sorted(direct, key=lambda one: one["start_step"])


def test_a_name_means_the_newest_run_of_that_name(sick: Path, healthy: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("import", healthy, "--run", "mine", "--data", data)
    run("import", sick, "--run", "mine", "--data", data)
    assert json.loads(run("findings", "mine", "--data", data, "--format", "json").stdout)["findings"]


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.strip().count(".") == 2
