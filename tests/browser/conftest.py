"""A real Chromium in front of a real collector with its pages; every test fails on a console error or a request to another host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.site import Site
from browser.visits import Visits
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

CHROMIUM = Path(shutil.which("chromium") or "/usr/bin/chromium")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For one file's tests only: while it lives, no other test in this process could start an event loop."""
    if not CHROMIUM.exists():
        pytest.skip("no Chromium here: `make env-system` installs it")
    with sync_playwright() as playwright:
        expect.set_options(15_000)
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


@pytest.fixture(scope="module")
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """One for all tests of a file: scripts are read once."""
    with chromium.new_context(viewport={"width": 1400, "height": 900}) as one:
        one.set_default_timeout(15_000)
        yield one


@pytest.fixture
def visit(context: BrowserContext, site: Site) -> Iterator[Visits]:
    visits = Visits(context, site)
    yield visits
    visits.end()
