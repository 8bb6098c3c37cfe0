"""The example of two roles that share one policy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gradwatch.store import open_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_two_roles.py"


def test_it_shows_each_role_s_gradient_and_keeps_it_in_a_store(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "3", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^step  (\d)  norm 0\.\d{3}", done.stdout, re.MULTILINE) == ["1", "2", "3"]
    assert re.search(r"solver 0\.\d{3} \(\d+%\)  verifier 0\.\d{3} \(\d+%\)  cosine [+-]0\.\d\d", done.stdout)
    store = open_store(tmp_path)
    (run,) = store.runs()
    found = {one.series.role for one in store.curves(run.id) if one.series.metric == "grad_norm"}
    assert found == {"", "solver", "verifier"}
    store.close()
