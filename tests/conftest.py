"""Where everything must be there (GRADWATCH_REQUIRE_ALL, set by .ci/run), a skipped test fails the run."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    if skipped and os.environ.get("GRADWATCH_REQUIRE_ALL"):
        reporter.write_line(f"\n{len(skipped)} tests were skipped, but GRADWATCH_REQUIRE_ALL is set", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
