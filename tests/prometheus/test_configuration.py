import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus.programs import FILES, REPOSITORY, check, program

from gradwatch.collector.core import Collector
from gradwatch.detectors import DETECTORS
from gradwatch.exporters.prometheus import PrometheusExporter
from gradwatch.schema import SEVERITIES, Block, Series
from gradwatch.store import open_store
from gradwatch.wire import Batch, OpenRun, pack

RULES = FILES / "rules.yml"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def alerts() -> list[dict[str, Any]]:
    return [rule for group in load(RULES)["groups"] for rule in group["rules"]]


def test_prometheus_accepts_its_configuration_and_the_rules() -> None:
    check([program("promtool"), "check", "config", FILES / "prometheus.yml"])
    check([program("promtool"), "check", "rules", RULES])


def test_the_rules_say_what_their_tests_expect() -> None:
    check([program("promtool"), "test", "rules", FILES / "rules_test.yml"])


def test_prometheus_accepts_the_configuration_of_the_containers(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    text = (FILES / "compose" / "prometheus.yml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/gradwatch_api_key", str(key)))
    (tmp_path / "rules.yml").write_text(RULES.read_text(encoding="utf-8"))
    check([program("promtool"), "check", "config", tmp_path / "prometheus.yml"])


def test_alertmanager_accepts_its_configuration() -> None:
    check([program("amtool"), "check-config", FILES / "alertmanager.yml"])


def test_the_containers_are_configured_like_one_machine_but_for_addresses_and_secrets() -> None:
    here, there = load(FILES / "prometheus.yml"), load(FILES / "compose" / "prometheus.yml")
    del there["scrape_configs"][0]["authorization"]
    # Links are made of it, and a browser cannot reach the collector by the name that the containers give it.
    assert there["scrape_configs"][0].pop("relabel_configs") == [{"target_label": "instance", "replacement": "127.0.0.1:8420"}]
    for one, other in ((here, "127.0.0.1"), (there, "(collector|alertmanager)")):
        for section in (one["scrape_configs"][0], one["alerting"]["alertmanagers"][0]):
            targets = section["static_configs"][0]["targets"]
            section["static_configs"][0]["targets"] = [re.sub(f"^{other}:", "host:", target) for target in targets]
    assert here == there
    here, there = load(FILES / "alertmanager.yml"), load(FILES / "compose" / "alertmanager.yml")
    for receiver in (*here["receivers"], *there["receivers"]):
        for hook in receiver.get("webhook_configs", ()):
            assert {"url", "url_file"} & hook.keys()
            hook.pop("url", None)
            hook.pop("url_file", None)
    assert here == there


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "page"), ("warning", "tell"), ("info", "nobody")])
def test_what_is_critical_pages_a_warning_is_told_and_info_is_not(severity: str, receiver: str) -> None:
    command = [program("amtool"), "config", "routes", "test", f"--config.file={FILES / 'alertmanager.yml'}"]
    done = subprocess.run([*command, f"severity={severity}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == receiver


def test_every_severity_of_a_finding_has_an_alert() -> None:
    expressions = {rule["expr"] for rule in alerts()}
    assert {f'gradwatch_finding_start_step{{severity="{severity}"}}' for severity in SEVERITIES} <= expressions


def test_every_alert_has_a_severity_and_says_what_why_and_where() -> None:
    for rule in alerts():
        severity = rule.get("labels", {}).get("severity") or re.search(r'severity="(\w+)"', rule["expr"])[1]
        assert severity in SEVERITIES
        assert {"summary", "reason", "link"} <= rule["annotations"].keys()
        if "run" in rule["annotations"]["summary"]:
            assert {"role", "step"} <= rule["annotations"].keys()


@pytest.mark.parametrize("kind", sorted({one.kind for one in DETECTORS}))
def test_an_alert_gives_the_reason_of_every_kind_of_finding_in_words(kind: str) -> None:
    assert f'eq $labels.kind "{kind}"' in alerts()[0]["annotations"]["reason"]


def test_every_alert_is_documented_and_no_other() -> None:
    page = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(Gradwatch\w+)` \| (\w+) \|", page, re.MULTILINE)
    named = [rule["alert"] for rule in alerts()]
    assert [name for name, _ in documented] == named
    severities = {rule["alert"]: rule.get("labels", {}).get("severity") for rule in alerts()}
    assert all(severities[name] in (None, severity) for name, severity in documented)


@pytest.fixture
def collector() -> Iterator[Collector]:
    store = open_store(None)
    collector = Collector(store)
    collector.start()
    yield collector
    collector.close()
    store.close()


@pytest.fixture
def exported(collector: Collector) -> set[str]:
    """The names of all samples of a scrape, of a run that fills every gauge and has a finding."""
    block = Block()
    for metric in ("loss", "grad_norm", "grad_share", "perplexity", "entropy", "inflation_ratio"):
        block.add(Series(metric, role="solver"), 0, float("nan"))
    for stat in ("mean", "std"):
        block.add(Series("reward", role="solver", stat=stat), 0, 0.5)
    collector.open(OpenRun(id="r1", process="p"))
    collector.submit("r1", Batch(id="b", process="p", columns=pack(block))).result(timeout=10)
    assert collector.watching.wait_until_judged(10)
    body, _ = PrometheusExporter(collector).exposition()
    return set(re.findall(r"^(\w+)[ {]", body.decode(), re.MULTILINE))


def test_the_rules_ask_only_for_metrics_that_the_collector_exports(exported: set[str]) -> None:
    asked = set(re.findall(r"gradwatch_\w+", RULES.read_text(encoding="utf-8")))
    assert asked
    assert asked <= exported


def test_every_exported_metric_is_documented_and_no_other(exported: set[str]) -> None:
    page = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8").partition("## What is exported")[2]
    documented = set(re.findall(r"`(gradwatch_\w+)`", page))
    assert documented == {name for name in exported if not name.startswith("process_")}
