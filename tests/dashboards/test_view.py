from __future__ import annotations

import pytest

from gradwatch_dashboards.app import find_page
from gradwatch_dashboards.view import View, flip, parse, run_path, search

FULL = View(
    attempt=2,
    metric="grad norm",
    role="a&b",
    first=-5,
    last=90,
    step=7,
    finding="f1",
    view="roles",
    axis="log",
    flipped=("progress", "modules"),
)


@pytest.mark.parametrize("view", [View(), FULL, View(role=""), View(first=0), View(step=0)])
def test_an_address_restores_the_view_that_it_was_made_from(view: View) -> None:
    assert parse(search(view)) == view


@pytest.mark.parametrize(
    "query", ["", None, "?", "?nonsense", "?from=abc&to=1e5&attempt=²", "?view=cube&axis=%00", "?step=9999999999999999999999"]
)
def test_what_cannot_be_read_is_left_out(query: str | None) -> None:
    assert parse(query) == View()


def test_the_links_of_alerts_are_understood() -> None:
    assert parse("?finding=63ad76422d7b257f").finding == "63ad76422d7b257f"
    assert parse("?step=220").step == 220


def test_a_section_that_is_flipped_twice_is_as_it_was() -> None:
    assert flip(flip(FULL, "modules"), "modules") == FULL._replace(flipped=("progress", "modules"))


@pytest.mark.parametrize("run", ["r1", "a?b#c&d", "späte läufe", "50%"])
def test_any_run_has_an_address_that_leads_to_its_page(run: str) -> None:
    from urllib.parse import unquote

    found = find_page(run_path(run))
    assert found is not None
    assert (found[0].path, unquote(found[1])) == ("/runs/{name}", run)


@pytest.mark.parametrize("path", ["/runs", "/runs/", "/runs/a/b", "/x"])
def test_other_addresses_are_no_pages(path: str) -> None:
    assert find_page(path) is None
