from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

from gradwatch.exporters.prometheus import PrometheusExporter, Vitals
from gradwatch.schema import FINISHED, RUNNING, Finding, Point, RunInfo, RunState, Series, StoredFinding

NOW = 1_000_000.0
NAN = Finding(kind="nonfinite", detector="nonfinite", severity="critical", metric="loss", start_step=40, end_step=40,
              message="m", suggestion="s", role="solver")  # fmt: skip
CHANGES = {"severity", "start_step", "closed", "attempt", "role"}


def state(run: str = "r1", **given: object) -> RunState:
    about = RunInfo(id=run, name="dr-mas", project="search", roles=given.pop("roles", {}))
    return RunState(info=about, **{"last_step": 40, "last_update": NOW - 5, "sequence": 9, **given})


def stored(finding: Finding = NAN, **given: object) -> StoredFinding:
    changed = msgspec.structs.replace(finding, **{name: given.pop(name) for name in CHANGES & given.keys()})
    return StoredFinding(finding=changed, **{"id": "f", "run": "r1", "created": NOW - 600, **given})


@dataclass
class Runs:
    """A collector's runs at one moment."""

    states_: list[RunState] = field(default_factory=lambda: [state()])
    points: Sequence[Point] = ()
    found: Sequence[StoredFinding] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    figures: Vitals = field(default_factory=lambda: Vitals(NOW))
    read: list[str] = field(default_factory=list)

    def states(self) -> list[RunState]:
        return self.states_

    def latest(self, run: str, attempt: int) -> list[Point]:
        self.read.append(run)
        return list(self.points)

    def findings(self, run: str) -> list[StoredFinding]:
        return list(self.found)

    def nonfinite(self, run: str) -> Mapping[str, int]:
        return self.counts

    def vitals(self) -> Vitals:
        return self.figures


Scraped = dict[str, dict[tuple[str, ...], float]]


def scrape(source: Runs | PrometheusExporter) -> Scraped:
    """Every sample by its name and its labels' values, sorted by label."""
    exporter = source if isinstance(source, PrometheusExporter) else PrometheusExporter(source, clock=lambda: NOW)
    body, _ = exporter.exposition()
    found: Scraped = {}
    for family in text(body.decode()):
        for one in family.samples:
            found.setdefault(one.name, {})[tuple(value for _, value in sorted(one.labels.items()))] = one.value
    return found


def test_a_role_is_shown_with_project_run_and_role_alone() -> None:
    points = [Point(Series("grad_norm", role="solver"), 40, 1.5), Point(Series("reward", stat="std"), 40, 0.2)]
    body, _ = PrometheusExporter(Runs(points=points), clock=lambda: NOW).exposition()
    lines = body.decode().splitlines()
    assert 'gradwatch_grad_norm{project="search",role="solver",run="r1"} 1.5' in lines
    assert 'gradwatch_reward_std{project="search",role="",run="r1"} 0.2' in lines


@pytest.mark.parametrize(("value", "written"), [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")])
@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0,*/*;q=0.1"])
def test_nan_and_infinities_reach_the_page_as_they_are(value: float, written: str, accept: str) -> None:
    source = Runs(points=[Point(Series("grad_norm", role="solver"), 40, value)])
    body, _ = PrometheusExporter(source, clock=lambda: NOW).exposition(accept)
    assert f'gradwatch_grad_norm{{project="search",role="solver",run="r1"}} {written}' in body.decode().splitlines()


def test_the_answer_is_valid_in_the_format_that_was_asked_for() -> None:
    source = Runs(points=[Point(Series("grad_norm"), 40, 1.0)], found=[stored()], counts={"solver": 2},
                  figures=Vitals(NOW, refused_requests_total={"busy": 1}, errors_total={"store": 0}))  # fmt: skip
    exporter = PrometheusExporter(source, clock=lambda: NOW)
    plain, plain_type = exporter.exposition("")
    modern, modern_type = exporter.exposition("application/openmetrics-text;version=1.0.0")
    assert plain_type.startswith("text/plain; version=0.0.4")
    assert modern_type.startswith("application/openmetrics-text; version=1.0.0")
    # The text format has no type for information and calls its family by its sample.
    names = {family.name.removesuffix("_info") for family in text(plain.decode())}
    assert {family.name for family in openmetrics(modern.decode())} == names


def test_steps_and_times_are_of_the_run_and_of_each_role() -> None:
    points = [Point(Series("loss", role="solver"), 39, 1.0, wall_time=NOW - 7), Point(Series("kl", role="verifier"), 12, 1.0)]
    found = scrape(Runs(points=points))
    assert found["gradwatch_step"] == {("search", "", "r1"): 40, ("search", "solver", "r1"): 39, ("search", "verifier", "r1"): 12}
    times = {("search", "", "r1"): NOW - 5, ("search", "solver", "r1"): NOW - 7}
    assert found["gradwatch_last_update_timestamp_seconds"] == times


def test_a_run_tells_its_name_status_and_page() -> None:
    exporter = PrometheusExporter(Runs(states_=[state("a b")]), page="http://127.0.0.1:8420/", clock=lambda: NOW)
    assert scrape(exporter)["gradwatch_run_info"] == {("dr-mas", "http://127.0.0.1:8420/runs/a%20b", "search", "a b", "running"): 1}


@pytest.mark.parametrize(
    ("status", "silent_for", "shown"),
    [(RUNNING, 3600, True), (RUNNING, 90_000, False), (FINISHED, 60, True), (FINISHED, 700, False)],
)
def test_a_run_is_shown_while_it_runs_and_ten_minutes_after_its_end(status: str, silent_for: float, shown: bool) -> None:
    source = Runs(states_=[state(status=status, last_update=NOW - silent_for)])
    assert bool(scrape(source).get("gradwatch_step")) is shown


def test_a_nonfinite_count_is_there_from_a_roles_first_value_on() -> None:
    source = Runs(points=[Point(Series("loss", role="solver"), 1, 1.0)])
    assert scrape(source)["gradwatch_nonfinite_total"] == {("search", "", "r1"): 0, ("search", "solver", "r1"): 0}
    source.counts = {"solver": 3, "": 1}
    assert scrape(source)["gradwatch_nonfinite_total"] == {("search", "", "r1"): 1, ("search", "solver", "r1"): 3}


def test_an_active_finding_tells_role_kind_severity_metric_and_step() -> None:
    found = scrape(Runs(found=[stored()]))
    labels = ("nonfinite", "search", "solver", "r1", "critical")
    assert found["gradwatch_findings_active"] == {labels: 1}
    assert found["gradwatch_findings_total"] == {labels: 1}
    assert found["gradwatch_finding_start_step"] == {("nonfinite", "loss", "search", "solver", "r1", "critical"): 40}


def test_of_findings_that_share_their_labels_the_first_step_is_shown() -> None:
    found = scrape(Runs(found=[stored(start_step=90), stored(start_step=40), stored(start_step=77)]))
    assert list(found["gradwatch_finding_start_step"].values()) == [40]
    assert list(found["gradwatch_findings_active"].values()) == [3]


@pytest.mark.parametrize(
    "over",
    [{"closed": True}, {"status": "resolved"}, {"false_alarm": True}, {"silenced_until": NOW + 60}, {"attempt": 0}],
)
def test_a_finding_that_is_over_silenced_or_wrong_is_counted_but_not_active(over: dict[str, object]) -> None:
    found = scrape(Runs(found=[stored(**over)]))
    assert list(found["gradwatch_findings_active"].values()) == [0]
    assert list(found["gradwatch_findings_total"].values()) == [1]
    assert "gradwatch_finding_start_step" not in found


def test_an_acknowledged_finding_and_one_whose_silence_has_ended_are_active() -> None:
    found = scrape(Runs(found=[stored(status="acknowledged"), stored(silenced_until=NOW - 1)]))
    assert list(found["gradwatch_findings_active"].values()) == [2]


@pytest.mark.parametrize("over", [{"closed": True}, {"attempt": 0}])
def test_trouble_that_ended_between_two_scrapes_is_shown_all_the_same(over: dict[str, object]) -> None:
    assert list(scrape(Runs(found=[stored(created=NOW - 20, **over)]))["gradwatch_findings_active"].values()) == [1]
    assert list(scrape(Runs(found=[stored(created=NOW - 61, **over)]))["gradwatch_findings_active"].values()) == [0]


def test_a_silenced_finding_is_not_shown_even_when_it_is_new() -> None:
    source = Runs(found=[stored(created=NOW, silenced_until=NOW + 60), stored(created=NOW, false_alarm=True)])
    assert list(scrape(source)["gradwatch_findings_active"].values()) == [0]


def test_the_count_of_findings_never_falls_when_one_becomes_graver() -> None:
    source = Runs(found=[stored(severity="warning")])
    exporter = PrometheusExporter(source, clock=lambda: NOW)
    scrape(exporter)
    source.found = [stored(severity="critical")]
    found = scrape(exporter)["gradwatch_findings_total"]
    assert {labels[-1]: count for labels, count in found.items()} == {"warning": 1, "critical": 1}


def test_the_first_fifty_roles_are_shown_and_what_concerns_others_is_counted_together() -> None:
    names = [f"role-{n}" for n in range(60)]
    points = [Point(Series("grad_norm", role=name), 1, 1.0) for name in names]
    source = Runs(states_=[state(roles={"judge": {}})], points=points, counts={"role-58": 2, "role-59": 3, "judge": 1},
                  found=[stored(role="role-59")])  # fmt: skip
    found = scrape(source)
    assert [labels[1] for labels in found["gradwatch_grad_norm"]] == names[:49]
    assert found["gradwatch_nonfinite_total"][("search", "judge", "r1")] == 1
    assert found["gradwatch_nonfinite_total"][("search", "other", "r1")] == 5
    assert [labels[2] for labels in found["gradwatch_findings_active"]] == ["other"]
    assert len(found["gradwatch_nonfinite_total"]) == 52  # the run as a whole, 50 roles, the others


def test_curves_are_read_again_only_after_a_commit_or_a_restart() -> None:
    source = Runs()
    exporter = PrometheusExporter(source, clock=lambda: NOW)
    scrape(exporter)
    scrape(exporter)
    assert source.read == ["r1"]
    source.states_ = [state(sequence=10)]
    scrape(exporter)
    source.states_ = [state(sequence=10, attempt=2)]
    scrape(exporter)
    assert source.read == ["r1"] * 3


def test_the_collectors_own_figures_are_there() -> None:
    figures = Vitals(started=5.0, points_total=7, batches_total=3, duplicate_batches_total=1,
                     refused_requests_total={"busy": 2, "too_large": 0}, commits_total=4, commit_seconds_total=0.5, queue_points=11,
                     queue_bytes=12, queue_limit_bytes=100, watch_lag_points=13, watch_lag_seconds=1.5,
                     errors_total={"store": 1})  # fmt: skip
    found = scrape(Runs(figures=figures))
    own = {name.removeprefix("gradwatch_collector_"): values for name, values in found.items() if "_collector_" in name}
    assert own == {
        "start_time_seconds": {(): 5.0},
        "points_total": {(): 7},
        "batches_total": {(): 3},
        "duplicate_batches_total": {(): 1},
        "refused_requests_total": {("busy",): 2, ("too_large",): 0},
        "commit_seconds_count": {(): 4},
        "commit_seconds_sum": {(): 0.5},
        "queue_points": {(): 11},
        "queue_bytes": {(): 12},
        "queue_limit_bytes": {(): 100},
        "watch_lag_points": {(): 13},
        "watch_lag_seconds": {(): 1.5},
        "errors_total": {("store",): 1},
    }


def test_no_label_tells_a_step_a_module_or_a_sample() -> None:
    points = [Point(Series("grad_norm", role="solver", scope="layers.0", agent="solver-1", rank=3), step, 1.0) for step in (1, 2)]
    body, _ = PrometheusExporter(Runs(points=points, found=[stored()]), clock=lambda: NOW).exposition()
    labels = {name for family in text(body.decode()) for one in family.samples for name in one.labels}
    known = {"project", "run", "role", "kind", "severity", "metric", "name", "status", "page"}
    assert labels <= known
