"""What `import gradwatch` may cost a training script."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "torch",
    "numpy",
    "httpx",
    "pydantic",
    "duckdb",
    "fastapi",
    "dash",
    "pandas",
    "mlflow",
    "sqlalchemy",
    "msgspec",
    "tensorboard",
)


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_gradwatch_loads_nothing_heavy() -> None:
    assert loaded_by("import gradwatch").isdisjoint(HEAVY)


def test_a_disabled_run_needs_msgspec_alone() -> None:
    statement = "import gradwatch\nwith gradwatch.init(mode='disabled') as run: run.log({'loss': 1.0})"
    assert loaded_by(statement) & set(HEAVY) == {"msgspec"}


def test_the_client_needs_msgspec_alone_until_it_connects() -> None:
    statement = "import gradwatch.client.start, gradwatch.client.sync"
    assert loaded_by(statement) & set(HEAVY) == {"msgspec"}


def test_the_records_need_msgspec_alone() -> None:
    assert loaded_by("import gradwatch.schema, gradwatch.metrics, gradwatch.errors") & set(HEAVY) == {"msgspec"}


def test_reading_a_console_log_needs_no_database() -> None:
    assert loaded_by("import gradwatch.importers.reader").isdisjoint({"torch", "duckdb", "sqlalchemy", "tensorboard", "pandas"})
