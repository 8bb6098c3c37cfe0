from __future__ import annotations

import json
import math
from typing import Any

from dash import html

from gradwatch.checkpoints.rating import Kept, Measured, Rated
from gradwatch.checkpoints.selection import Pick
from gradwatch.schema import Attempt, BestStep, Checkpoint, Event, Finding, RunInfo, RunState, Sample, Series, Span, StoredFinding
from gradwatch_dashboards.charts import sections
from gradwatch_dashboards.focus import focus
from gradwatch_dashboards.pages.runs import runs_table
from gradwatch_dashboards.palette import role_inks
from gradwatch_dashboards.parts import LONG_TEXT, findings_count, long_text
from gradwatch_dashboards.run_parts.checkpoints import checkpoints_info, checkpoints_table
from gradwatch_dashboards.run_parts.findings import MAX_FINDINGS, findings_info, findings_list
from gradwatch_dashboards.run_parts.grid import grid, grid_info
from gradwatch_dashboards.run_parts.head import head, head_info
from gradwatch_dashboards.run_parts.samples import samples_info, samples_table
from gradwatch_dashboards.view import ROLES as BY_ROLE
from gradwatch_dashboards.view import View

ROLES = {"planner": {}, "searcher": {}}
INKS = role_inks(ROLES, [])
STATE = RunState(info=RunInfo("r1", "dr-mas", roles=ROLES), attempt=2, last_step=300)


def stored(at: int, role: str = "searcher", severity: str = "critical", **about: Any) -> StoredFinding:
    life = {key: about.pop(key) for key in ("status", "false_alarm") if key in about}
    found = Finding(
        kind=about.pop("kind", "norm_spike"),
        detector="norm_spike",
        severity=severity,
        metric="grad_norm",
        role=role,
        start_step=at,
        end_step=at,
        attempt=2,
        message="m",
        suggestion="s",
        **about,
    )
    return StoredFinding(id=f"{role}{at}", run="r1", finding=found, **life)


def text(component: Any) -> str:
    """What a reader would read of a component."""
    if component is None:
        return ""
    if isinstance(component, list | tuple):
        return "".join(map(text, component))
    return text(component.children) if hasattr(component, "children") else str(component)


def head_of(findings: list[StoredFinding], state: RunState = STATE) -> str:
    looked = focus(View(), 2, [], findings)
    return text(head(head_info(state, [Attempt(run="r1", number=2, status=state.status)], looked, findings, INKS, View())))


def test_the_earliest_finding_names_who_broke_first_whatever_its_severity() -> None:
    said = head_of([stored(220), stored(180, "planner", "warning"), stored(10, "planner", "info")])
    assert "planner broke first: norm spike in grad_norm, since step 180" in said


def test_of_roles_that_broke_at_the_same_step_none_is_said_to_be_the_first() -> None:
    said = head_of([stored(40, kind="nonfinite"), stored(40, "planner", "warning", kind="nonfinite"), stored(50, "planner")])
    assert "planner, searcher broke at once: nonfinite in grad_norm, since step 40" in said
    assert "searcher broke first" in head_of([stored(40), stored(40, "planner", kind="nonfinite", severity="info")])


def test_a_false_alarm_and_another_attempts_finding_accuse_nobody() -> None:
    assert "No problem found so far." in head_of([stored(5, false_alarm=True)])
    assert "No problem found." in head_of([], RunState(info=STATE.info, attempt=2, status="finished"))


def test_an_older_attempt_has_its_own_status_and_last_step() -> None:
    spans = [Span(Series("loss", "loss", attempt=1), 0, 119)]
    attempts = [Attempt(run="r1", number=1, status="interrupted"), Attempt(run="r1", number=2)]
    said = text(head(head_info(STATE, attempts, focus(View(attempt=1), 2, spans, []), [], INKS, View())))
    assert "interruptedstep 119updated" in said
    assert "No problem found." in said


def test_findings_are_counted_in_words_those_that_go_on_first() -> None:
    counts = [({"critical": 1}, {}), ({"warning": 2}, {"critical": 3}), ({}, {"info": 1}), ({}, {})]
    said = [text(findings_count(RunState(info=STATE.info, findings=now, resolved=over))) for now, over in counts]
    assert said == ["1 critical", "2 warning, 3 critical over", "1 info over", "none"]


def test_every_role_stands_with_its_gravest_finding() -> None:
    said = head_of([stored(180, "searcher", "warning"), stored(220), stored(221)])
    assert "planner ✓ healthy" in said
    assert "searcher ◆ critical norm spike, step 220 +2" in said


def test_findings_that_go_on_stand_before_those_that_are_over_the_gravest_first() -> None:
    found = [stored(1, status="resolved", closed=True), stored(9, severity="warning"), stored(7), stored(5)]
    assert [one.finding.start_step for one in findings_info("r1", View(), 2, found, INKS).found] == [5, 7, 9, 1]


def test_hundreds_of_findings_are_a_list_and_a_count() -> None:
    found = [stored(at) for at in range(MAX_FINDINGS + 7)]
    assert "7 milder or later ones are not shown" in text(findings_list(findings_info("r1", View(), 2, found, INKS)))


def test_only_charts_that_have_a_column_a_role_stand_below_the_roles_names() -> None:
    spans = [Span(Series("grad_norm", "grad_norm", role="planner"), 0, 9), Span(Series("loss", "loss"), 0, 9)]
    info = grid_info("r1", View(view=BY_ROLE), sections(spans, [], "", ()), INKS.items())
    assert [("planner" in text(one)) for one in grid(info)] == [True, False]


def test_the_checkpoint_worth_keeping_is_marked_with_its_reason() -> None:
    saved = [Checkpoint(step=step, uri=f"out/{step}", attempt=2) for step in (100, 150, 200)]
    rated = Rated.of(Measured(Series("accuracy", "eval/accuracy", stream="eval", attempt=2), [149, 170], [0.4, 0.5]), [])
    pick = Pick(BestStep(170, "eval/accuracy", 0.5, "why"), Kept((saved[1],), 0.4, 149, "the best of three"), rated)
    info = checkpoints_info([*saved, Checkpoint(step=160, uri="old", attempt=1)], pick, 2)
    assert (info.kept, [one.step for one in info.checkpoints]) == (150, [200, 150, 100])
    said = text(checkpoints_table(info))
    assert "150★ best saved" in said
    assert "★ step 150: the best of three" in said
    assert "Best step 170: eval/accuracy = 0.5; why" in said
    older = checkpoints_info(saved, pick, 1)
    assert (older.best, older.kept) == (None, None)


def test_a_sample_is_its_text_and_what_it_earned() -> None:
    one = Sample(5, "searcher", "searcher-1", 2, "q7", "<b>why</b>", "because", {"correct": 1.0}, -0.25, 10, None, False)
    said = text(samples_table(samples_info("r1", View(), (5, "searcher"), [1, 5, 9], [one], INKS)))
    for part in ("searcher-1", "turn 2", "group q7", "<b>why</b>", "because", "correct 1", "-0.25", "10 → –", "✖ invalid"):
        assert part in said
    assert "← step 1" in said
    assert "step 9 →" in said


def test_influence_is_a_column_only_where_a_sample_has_one() -> None:
    measured = Sample(5, "searcher", output="a", influence=0.3456)
    against = Sample(5, "searcher", output="b", influence=-0.02)
    lost = Sample(5, "searcher", output="c", influence=math.nan)
    without = Sample(5, "searcher", output="d")
    said = text(samples_table(samples_info("r1", View(), (5, None), [5], [measured, against, lost, without], INKS)))
    for part in ("Influence", "+34.6 %", "-2.0 %", "NaN"):
        assert part in said
    assert "Influence" not in text(samples_table(samples_info("r1", View(), (5, None), [5], [without], INKS)))


def test_the_first_nonfinite_finding_of_a_step_says_where_it_came_from() -> None:
    found = [
        stored(40, kind="nonfinite"),
        stored(40, "planner", "warning", kind="nonfinite"),
        stored(41, kind="nonfinite"),
        stored(40, "planner"),
    ]
    seen = [
        Event(step=40, attempt=1, kind="nonfinite", message="in another attempt"),
        Event(step=40, attempt=2, kind="nonfinite", message="first in 'h.1'"),
    ]
    said = text(findings_list(findings_info("r1", View(), 2, found, INKS, seen)))
    assert said.count("Where: first in 'h.1'") == 1
    assert "another attempt" not in said


def test_no_component_that_reads_markup_ever_holds_a_sample() -> None:
    one = Sample(5, "searcher", prompt="<img src=x>", output="# title\n" * 200)
    table = samples_table(samples_info("r1", View(), (5, None), [5], [one], INKS))
    types = json.dumps([part.to_plotly_json() for part in table], default=lambda part: part.to_plotly_json())
    assert not {"Markdown", "DangerouslySetInnerHTML", "Iframe"} & {word.strip('"') for word in types.split()}


def test_a_long_text_is_shown_in_part_with_the_whole_behind_it() -> None:
    long = long_text("x" * (LONG_TEXT + 1), "output")
    assert isinstance(long, html.Details)
    assert "show all 401 characters of the output" in text(long)
    assert isinstance(long_text("x" * LONG_TEXT, "output"), html.Pre)


def test_no_runs_is_three_lines_to_the_first_one() -> None:
    said = text(runs_table([]))
    assert "gradwatch.init" in said
    assert "gradwatch import" in said


def test_a_run_is_a_row_with_health_as_word_and_shape() -> None:
    state = RunState(info=RunInfo("a/b", "dr-mas", "search"), last_step=1234, findings={"warning": 2}, resolved={"critical": 1})
    said = text(runs_table([state]))
    for part in ("dr-mas", "◆ critical", "2 warning, 1 critical over", "▶ running", "1,234", "search"):
        assert part in said
