from __future__ import annotations

from typing import Any

from gradwatch.schema import Finding, Series, Span
from gradwatch_dashboards.charts import FOUND, MAX_CHARTS, Chart, Section, place, sections, title


def span(metric: str, **axes: Any) -> Span:
    return Span(Series(metric, **axes), 0, 9)


def finding(metric: str, **axes: Any) -> Finding:
    return Finding(
        kind="k", detector="d", severity="critical", metric=metric, start_step=1, end_step=1, message="", suggestion="", **axes
    )


def test_a_metric_is_one_chart_whatever_roles_and_ranks_log_it() -> None:
    spans = [span("grad_norm", role="a"), span("grad_norm", role="b"), span("grad_norm", rank=1)]
    assert sections(spans, [], "", ()) == [Section("gradients", "Gradients", (Chart("grad_norm"),), by_role=True)]


def test_charts_with_findings_come_first_the_others_by_meaning() -> None:
    spans = [span("my/own"), span("entropy"), span("reward", stat="mean"), span("loss"), span("grad_norm"), span("kl")]
    found = sections(spans, [finding("reward", stat="mean")], "", ())
    assert [(one.key, [chart.metric for chart in one.charts]) for one in found] == [
        (FOUND, ["reward"]),
        ("gradients", ["grad_norm"]),
        ("losses", ["loss"]),
        ("entropy", ["entropy", "kl"]),
        ("other", ["my/own"]),
    ]


def test_modules_and_spreads_wait_in_sections_of_their_own_until_they_are_opened() -> None:
    spans = [span("grad_norm", scope="h.0"), span("reward", stat="std"), span("learning_rate")]
    assert [(one.key, one.opened) for one in sections(spans, [], "", ())] == [
        ("progress", False),
        ("statistics", False),
        ("modules", False),
    ]
    assert [one.opened for one in sections(spans, [], "", ("modules",))] == [False, False, True]


def test_a_mean_over_rollouts_stands_on_the_chart_of_the_number_itself() -> None:
    spans = [span("reward"), span("reward", role="solver", stat="mean")]
    assert sections(spans, [], "", ()) == [Section("rewards", "Rewards and scores", (Chart("reward"),), by_role=True)]
    assert place(finding("reward", stat="mean"), [Chart("reward")]) == Chart("reward")


def test_a_scope_that_is_a_role_or_a_reward_function_is_no_module() -> None:
    spans = [span("grad_cosine", role="solver", scope="verifier"), span("reward_component", scope="fits"), span("grad_norm")]
    found = sections(spans, [], "", ())
    assert [(one.key, [title(chart) for chart in one.charts]) for one in found] == [
        ("gradients", ["Gradient norm", "Gradient cosine with verifier"]),
        ("rewards", ["Reward component · fits"]),
    ]


def test_what_tells_of_the_measuring_groups_and_calls_stays_closed_below_the_curves() -> None:
    names = ("role_grad_coverage", "role_grad_error", "step_skipped", "groups", "measured_inflation", "calls", "output_tokens")
    spans = [span(name, scope="neutral" if name.startswith("role_grad") else "") for name in names]
    assert [(one.key, len(one.charts), one.opened) for one in sections(spans, [], "", ())] == [
        ("groups", 2, False),
        ("calls", 2, False),
        ("measured", 3, False),
    ]


def test_two_thousand_charts_are_a_few_and_a_count() -> None:
    spans = [span("grad_norm", scope=f"layers.{at}") for at in range(2000)]
    (modules,) = sections(spans, [], "", ("modules",))
    assert (len(modules.charts), modules.more) == (MAX_CHARTS, 2000 - MAX_CHARTS)


def test_modules_stand_in_the_order_of_their_numbers() -> None:
    spans = [span("grad_norm", scope=f"layers.{at}.q") for at in (10, 9, 100, 1)]
    (modules,) = sections(spans, [], "", ())
    assert [one.scope for one in modules.charts] == [f"layers.{at}.q" for at in (1, 9, 10, 100)]


def test_the_filter_takes_words_of_title_and_key_and_opens_what_it_finds() -> None:
    spans = [span("grad_norm", scope="layers.7"), span("grad_norm"), span("loss")]
    found = sections(spans, [], "gradient 7", ())
    assert [(one.key, one.opened, len(one.charts)) for one in found] == [("modules", True, 1)]
    assert sections(spans, [], "nothing like it", ()) == []


def test_a_finding_without_a_series_of_its_own_stands_on_a_chart_of_its_metric() -> None:
    charts = [Chart("reward", stat="std"), Chart("reward", stat="max")]
    assert place(finding("reward"), charts) == Chart("reward", stat="max")
    assert place(finding("loss"), charts) == Chart("loss")


def test_titles_are_words() -> None:
    assert title(Chart("grad_norm")) == "Gradient norm"
    assert title(Chart("accuracy", "eval")) == "Accuracy · eval"
    assert title(Chart("reward", stat="std", scope="format")) == "Reward · format (std)"
    assert title(Chart("my_own/thing")) == "my_own/thing"
