from __future__ import annotations

import math
from array import array
from base64 import b64decode
from typing import Any

import plotly.graph_objects as go
import pytest

from gradwatch.schema import Curve, Finding, Series
from gradwatch_dashboards.charts import Chart
from gradwatch_dashboards.figures.axis import Axis
from gradwatch_dashboards.figures.lines import Line, line
from gradwatch_dashboards.figures.marks import Mark, mark, mark_labels
from gradwatch_dashboards.figures.metric import Frame, MetricInfo, axis_note, described, lost_note, metric_figure, metric_info
from gradwatch_dashboards.figures.side_by_side import Column, SideBySide, side_by_side_figure, side_by_side_info
from gradwatch_dashboards.palette import THEMES, Ink, role_inks

NAN, INF = math.nan, math.inf
INKS = role_inks(["planner", "searcher"], [])
NORM = Chart("grad_norm")
FRAME = Frame((-0.5, 4.5))
FOUND = Finding(
    kind="nonfinite",
    detector="nonfinite",
    severity="critical",
    metric="grad_norm",
    role="searcher",
    start_step=2,
    end_step=3,
    message="m",
    suggestion="s",
)


def curve(values: list[float], role: str = "", **axes: Any) -> Curve:
    return Curve(Series("grad_norm", f"{role}/grad_norm", role=role, **axes), [*range(len(values))], values, [NAN] * len(values))


def floats(typed: dict[str, str]) -> list[float]:
    return array("d", b64decode(typed["bdata"])).tolist()


SICK = curve([1.0, 1.1, NAN, INF, 1.2], "searcher")
CALM = curve([1.0, 0.9, 1.0, 0.95, 1.0], "planner")


def sick_info(**about: Any) -> MetricInfo:
    return metric_info(NORM, [SICK, CALM], INKS, [mark(FOUND)], FRAME._replace(**about))


def test_a_chart_shows_each_role_in_its_ink_with_gaps_and_what_was_lost() -> None:
    assert sick_info() == MetricInfo(
        NORM,
        (
            Line("planner", "planner", Ink("#1a73c8"), (0, 1, 2, 3, 4), (1.0, 0.9, 1.0, 0.95, 1.0)),
            Line(
                "searcher",
                "searcher",
                Ink("#d9541e"),
                (0, 1, 2, 3, 4),
                (1.0, 1.1, math.nan, math.nan, 1.2),
                ((2, "NaN"), (3, "+Inf")),
            ),
        ),
        Axis(pytest.approx(0.882), pytest.approx(1.218)),  # type: ignore[arg-type]
        (Mark(2, 3, "critical", "◆ searcher nonfinite @ 2"),),
        FRAME,
    )


def test_minus_infinity_is_told_from_the_others() -> None:
    assert line(curve([-INF, NAN, INF]), INKS).lost == ((0, "-Inf"), (1, "NaN"), (2, "+Inf"))


def test_lines_of_one_name_are_told_apart_by_their_keys() -> None:
    one, other = curve([1.0]), curve([2.0])
    other = other._replace(series=Series("grad_norm", "other/key"))
    assert [one.name for one in metric_info(NORM, [one, other], INKS, [], FRAME).lines] == [
        "whole run (/grad_norm)",
        "whole run (other/key)",
    ]


def test_agents_and_ranks_of_a_role_wear_its_ink_as_thin_lines() -> None:
    lines = metric_info(
        NORM, [curve([1.0], "searcher", agent="searcher-1"), curve([1.0], "searcher", rank=3)], INKS, [], FRAME
    ).lines
    assert {one.name for one in lines} == {"searcher-1", "searcher · rank 3"}
    assert all(one.thin and one.ink == INKS["searcher"] for one in lines)


def test_the_lost_values_are_counted_beside_the_title() -> None:
    assert lost_note(sick_info()) == "2 non-finite"
    assert lost_note(metric_info(NORM, [CALM], INKS, [], FRAME)) == ""


def test_a_count_that_thinning_may_have_lowered_says_so() -> None:
    stretch = metric_info(NORM, [curve([NAN, 1.0, 1.0, NAN, 1.0])], INKS, [], FRAME._replace(bucket=10.0))
    assert lost_note(stretch) == "2+ non-finite"
    assert lost_note(stretch._replace(frame=FRAME._replace(bucket=2.0))) == "2 non-finite"
    assert lost_note(sick_info(bucket=10.0)) == "2 non-finite"


def test_what_the_axis_does_not_hold_is_told() -> None:
    wild = [1 + 0.01 * at for at in range(100)]
    info = metric_info(NORM, [curve([*wild, 1e6, -5000.0])], INKS, [], Frame((-0.5, 200)))
    assert axis_note(info) == "2 beyond the axis, the farthest 1e+06"
    assert axis_note(metric_info(NORM, [curve([-1.0, 1.0])], INKS, [], FRAME._replace(kind="log"))) == (
        "1 not above 0: no place on a log axis"
    )


def test_the_axis_holds_what_is_seen_not_what_was_zoomed_away() -> None:
    info = metric_info(NORM, [curve([1e3, 1.0, 2.0, 1.0, 2.0])], INKS, [], Frame((0.5, 4.5), zoomed=True))
    assert info.axis.high is not None
    assert info.axis.high < 3


def test_a_chart_is_described_in_a_sentence() -> None:
    assert described(sick_info()) == (
        "Gradient norm of planner, searcher, steps 0 to 4; 2 non-finite; findings: ◆ searcher nonfinite @ 2"
    )


@pytest.mark.parametrize("theme", THEMES)
def test_plotly_accepts_the_figure(theme: str) -> None:
    for kind in ("auto", "full", "log"):
        go.Figure(metric_figure(sick_info(kind=kind, step=3, role="planner"), THEMES[theme]))


def test_what_was_lost_is_marked_at_the_upper_edge_on_an_axis_of_its_own() -> None:
    figure = metric_figure(sick_info(), THEMES["light"])
    marks = figure["data"][2]
    assert (marks["mode"], marks["yaxis"], marks["text"]) == ("markers", "y2", ["NaN", "+Inf"])
    assert floats(marks["x"]) == [2, 3]
    assert min(floats(marks["y"])) > 0.9
    assert figure["layout"]["yaxis2"]["range"] == [0, 1]


def test_a_line_has_a_gap_where_it_was_lost() -> None:
    drawn = metric_figure(sick_info(), THEMES["light"])["data"][1]
    assert drawn["connectgaps"] is False
    assert [math.isnan(one) for one in floats(drawn["y"])] == [False, False, True, True, False]


def test_a_value_between_two_gaps_is_seen() -> None:
    info = metric_info(NORM, [curve([NAN, 1.0, NAN, 2.0, 2.0])], INKS, [], FRAME)
    assert metric_figure(info, THEMES["light"])["data"][0]["mode"] == "lines+markers"
    assert metric_figure(sick_info(), THEMES["light"])["data"][0]["mode"] == "lines"


def test_other_roles_fade_where_one_is_chosen() -> None:
    drawn = metric_figure(sick_info(role="searcher"), THEMES["light"])["data"]
    assert [one["opacity"] for one in drawn] == [0.2, 1, 1]


def test_a_finding_is_a_shaded_range_with_a_line_where_it_starts() -> None:
    rect, edge = metric_figure(sick_info(), THEMES["dark"])["layout"]["shapes"]
    assert (rect["type"], rect["x0"], rect["x1"], rect["fillcolor"]) == ("rect", 2, 3, THEMES["dark"].severities["critical"])
    assert (edge["type"], edge["x0"], edge["x1"]) == ("line", 2, 2)


def test_one_range_of_many_findings_is_shaded_once() -> None:
    info = metric_info(NORM, [SICK], INKS, [mark(FOUND)] * 20, FRAME)
    assert len(metric_figure(info, THEMES["light"])["layout"]["shapes"]) == 2


def test_the_zoom_outlives_news_until_the_address_says_otherwise() -> None:
    def kept(frame: Frame) -> Any:
        return metric_figure(metric_info(NORM, [SICK], INKS, [], frame), THEMES["light"])["layout"]["xaxis"]["uirevision"]

    assert kept(Frame((-0.5, 4.5))) == kept(Frame((-0.5, 9.5)))
    assert kept(Frame((2.0, 3.0), zoomed=True)) != kept(Frame((2.0, 4.0), zoomed=True))


def test_names_of_findings_do_not_cover_each_other() -> None:
    marks = [Mark(at, at, "critical", "◆ searcher nonfinite @ 100") for at in (100, 101, 102, 900)]
    labels = mark_labels(marks, (0, 1000), THEMES["light"])
    assert [(one["x"], one["yshift"] > 0, one["xanchor"]) for one in labels] == [
        (100, False, "left"),
        (101, True, "left"),
        (900, False, "right"),
    ]


def test_names_are_no_markup_for_plotly() -> None:
    evil = curve([1.0], "<b>x</b>%{y}")
    info = metric_info(NORM, [evil], role_inks([], ["<b>x</b>%{y}"]), [mark(FOUND)], FRAME)
    trace = metric_figure(info, THEMES["light"])["data"][0]
    assert "<b>" not in trace["name"] + trace["hovertemplate"]
    assert trace["hovertemplate"].count("%{") == 1


def test_side_by_side_each_role_has_its_column_and_all_share_the_axes() -> None:
    info = side_by_side_info(sick_info(), INKS, {"searcher": [mark(FOUND)]})
    lines = sick_info().lines
    assert info == SideBySide(
        NORM, (Column("planner", lines[:1], ()), Column("searcher", lines[1:], (mark(FOUND),))), sick_info().axis, FRAME
    )
    layout = side_by_side_figure(info, THEMES["light"])["layout"]
    assert layout["xaxis2"]["matches"] == "x"
    assert layout["yaxis"]["range"] == layout["yaxis2"]["range"]
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]


def test_side_by_side_the_whole_run_is_in_every_column_and_alone_where_there_are_no_roles() -> None:
    both = side_by_side_info(metric_info(NORM, [SICK, curve([1.0])], INKS, [], FRAME), INKS, {"": [mark(FOUND)]})
    assert [[one.name for one in column.lines] for column in both.columns] == [["whole run"], ["searcher", "whole run"]]
    assert [len(column.marks) for column in both.columns] == [1, 1]
    alone = side_by_side_info(metric_info(NORM, [curve([1.0])], INKS, [], FRAME), INKS, {})
    assert [column.role for column in alone.columns] == [""]


@pytest.mark.parametrize("theme", THEMES)
def test_plotly_accepts_the_side_by_side_figure(theme: str) -> None:
    whole = metric_info(NORM, [SICK], INKS, [], FRAME._replace(step=2))
    figure = go.Figure(side_by_side_figure(side_by_side_info(whole, INKS, {"searcher": [mark(FOUND)]}), THEMES[theme]))
    assert figure.layout.annotations[0].text == "not logged for this role"
