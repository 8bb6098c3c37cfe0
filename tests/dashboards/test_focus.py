from __future__ import annotations

from gradwatch.schema import Finding, Series, Span, StoredFinding
from gradwatch_dashboards.focus import focus
from gradwatch_dashboards.view import View

SPANS = [Span(Series("loss", attempt=1), 0, 50), Span(Series("loss", attempt=2), 40, 300), Span(Series("kl", attempt=2), 10, 90)]
FOUND = StoredFinding(
    id="f1",
    run="r1",
    finding=Finding(
        kind="nonfinite",
        detector="nonfinite",
        severity="critical",
        metric="loss",
        role="searcher",
        start_step=220,
        end_step=224,
        attempt=2,
        message="",
        suggestion="",
    ),
)


def test_by_default_all_steps_of_the_newest_attempt_are_seen() -> None:
    found = focus(View(), 2, SPANS, [FOUND])
    assert (found.attempt, found.extent, found.zoomed, found.step, found.role) == (2, (10, 300), False, None, None)
    assert (found.steps[0] < 10, found.steps[1] > 300) == (True, True)


def test_a_finding_is_its_steps_its_role_and_its_attempt() -> None:
    found = focus(View(finding="f1"), 3, SPANS, [FOUND])
    assert (found.attempt, found.zoomed, found.step, found.role, found.finding) == (2, True, 220, "searcher", FOUND)
    assert (round(found.steps[0]), round(found.steps[1])) == (208, 236)


def test_what_the_reader_chose_goes_before_what_the_finding_says() -> None:
    found = focus(View(finding="f1", first=100, last=50, step=7, role="planner"), 2, SPANS, [FOUND])
    assert (found.step, found.role) == (7, "planner")
    assert (round(found.steps[0]), round(found.steps[1])) == (50, 100)


def test_one_end_of_a_zoom_leaves_the_other_open() -> None:
    assert focus(View(first=290), 2, SPANS, []).steps[1] > 300


def test_an_unknown_finding_and_an_attempt_without_points_are_no_trouble() -> None:
    assert focus(View(finding="gone"), 2, SPANS, [FOUND]).finding is None
    assert focus(View(attempt=9), 2, SPANS, []).extent == (0, 1)
