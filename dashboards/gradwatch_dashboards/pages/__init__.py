"""The pages, one file each; `PAGES` lists them in the order in which their addresses are tried."""

from __future__ import annotations

from gradwatch_dashboards.pages.page import Page
from gradwatch_dashboards.pages.run import RUN
from gradwatch_dashboards.pages.runs import RUNS

PAGES: tuple[Page, ...] = (RUNS, RUN)

__all__ = ["PAGES", "Page"]
