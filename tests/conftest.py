"""Where everything must be there (GRADWATCH_REQUIRE_ALL, set by .ci/run), a skipped test fails the run.

A test that needs a device which no package brings is the exception: its reason names CUDA.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# Several files run at a time. Without it accelerate sets it in the middle of a test, and warns.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more of the machine than of the code.
settings.register_profile("gradwatch", deadline=None)
settings.load_profile("gradwatch")

# A shell starts what runs in its background with Ctrl-C ignored, and processes that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [one for one in reporter.stats.get("skipped", []) if "CUDA" not in str(one.longrepr)] if reporter is not None else []
    if skipped and os.environ.get("GRADWATCH_REQUIRE_ALL"):
        reporter.write_line(f"\n{len(skipped)} tests were skipped, but GRADWATCH_REQUIRE_ALL is set", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
