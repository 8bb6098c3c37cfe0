"""What Alertmanager tells of several alerts at once."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from prometheus.stack import alertmanager, receiver, until


def alert(name: str, severity: str, run: str = "r1", role: str = "solver", kind: str = "nonfinite") -> dict[str, dict[str, str]]:
    return {"labels": {"alertname": name, "severity": severity, "project": "p", "run": run, "role": role, "kind": kind}}


def test_the_gravest_is_told_info_is_not_and_what_befalls_a_run_comes_in_one_message(tmp_path: Path) -> None:
    sent = [
        alert("GradwatchCriticalFinding", "critical"),
        alert("GradwatchWarningFinding", "warning"),  # the same trouble, milder
        alert("GradwatchWarningFinding", "warning", kind="norm_spike"),
        alert("GradwatchWarningFinding", "warning", role="verifier"),
        alert("GradwatchInfoFinding", "info", kind="own"),
        alert("GradwatchWarningFinding", "warning", run="r2"),
    ]
    with receiver() as (webhook, told), alertmanager(tmp_path, webhook) as address:
        body, headers = json.dumps(sent).encode(), {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{address}/api/v2/alerts", body, headers), timeout=5).close()
        until(lambda: len(told) >= 4 or None, 15, "four alerts are told")
    heard = {(one.receiver, *(one.labels[name] for name in ("severity", "run", "role", "kind"))) for one in told}
    assert heard == {
        ("/page", "critical", "r1", "solver", "nonfinite"),
        ("/tell", "warning", "r1", "solver", "norm_spike"),
        ("/tell", "warning", "r1", "verifier", "nonfinite"),
        ("/tell", "warning", "r2", "solver", "nonfinite"),
    }
    assert len({one.at for one in told if one.receiver == "/tell" and one.labels["run"] == "r1"}) == 1
