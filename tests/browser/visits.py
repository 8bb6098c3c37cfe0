"""Pages that are watched while a test looks at them."""

from __future__ import annotations

from typing import Literal

from browser.site import Site
from playwright.sync_api import BrowserContext, Page


class Visits:
    """Pages of a site that are watched for console errors and for requests to other hosts."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self._context = context
        self._site = site
        self._pages: list[Page] = []
        self.complaints: list[str] = []

    def __call__(self, path: str = "/", theme: Literal["light", "dark"] = "light", allowed: str = "\0") -> Page:
        """Open an address; a console error that a test brings about on purpose holds the word that it `allowed`."""
        page = self._context.new_page()
        self._pages.append(page)
        page.emulate_media(color_scheme=theme)
        page.on("console", lambda said: self._complain(said.text) if said.type == "error" and allowed not in said.text else None)
        page.on("pageerror", lambda error: self._complain(str(error)))
        page.on("request", lambda asked: None if at_home(asked.url, self._site.url) else self._complain(f"asked {asked.url}"))
        page.goto(self._site.url + path)
        return page

    def end(self) -> None:
        """Close the pages; none of them may have had anything to complain about."""
        for one in self._pages:
            one.close()
        assert self.complaints == []

    def _complain(self, text: str) -> None:
        self.complaints.append(text)


def at_home(url: str, home: str) -> bool:
    return url.startswith((home, "data:", "blob:"))
