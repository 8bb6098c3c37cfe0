"""One run's page: which role broke at which step, what it said then, and links that lead there."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from browser.scenario import NAN, SPIKE
from browser.site import Site
from browser.test_live import PLOTS, RANGES
from browser.visits import Visits
from playwright.sync_api import BrowserContext, Page, expect

from gradwatch.schema import Block, Checkpoint, Sample, Series


@pytest.fixture(autouse=True, scope="module")
def run(site: Site) -> None:
    assert site.sick


@pytest.fixture(scope="module")
def page(context: BrowserContext, site: Site, run: None) -> Iterator[Page]:
    """The run's page, for tests that only look."""
    visits = Visits(context, site)
    yield visits("/runs/sick")
    visits.end()


def finding_id(site: Site, kind: str) -> str:
    assert site.collector.watching.wait_until_judged(10)
    return next(one.id for one in site.collector.findings("sick") if one.finding.kind == kind)


def drawn(page: Page) -> None:
    page.wait_for_function(f"() => document.querySelectorAll('{PLOTS} .scatterlayer path.js-line').length > 3")


def test_the_head_says_which_role_broke_first_and_since_when(page: Page) -> None:
    expect(page.locator("#verdict")).to_contain_text(f"searcher broke first: norm spike in searcher/grad_norm, since step {SPIKE}")
    roles = page.locator(".roles li")
    expect(roles.nth(1)).to_contain_text("critical")
    expect(roles.nth(0)).to_contain_text("healthy")
    expect(page.locator("#checkpoints-title")).to_have_text("Checkpoints (6)")
    expect(page.locator("#run-checkpoints")).to_contain_text("★")
    expect(page.locator("#run-events li").last).to_contain_text("opened the run")


def test_what_is_not_finite_is_a_gap_and_a_mark_and_a_count(page: Page) -> None:
    drawn(page)
    norm = page.locator("figure", has=page.get_by_text("Gradient norm", exact=True))
    expect(norm).to_contain_text("3 non-finite")
    marks = norm.locator(f"{PLOTS}").evaluate(
        "plot => plot._fullData.filter(one => one.mode === 'markers').map(one => [[...one.x].join(), [...one.text].join()])"
    )
    assert marks == [[f"{NAN},{NAN + 1},{NAN + 2}", "NaN,NaN,+Inf"]]
    expect(norm.locator("path.point").first).to_be_visible()
    gap = norm.locator(f"{PLOTS}").evaluate(
        f"plot => {{ const line = plot._fullData.find(one => one.name === 'searcher' && one.mode === 'lines');"
        f" return [line.x.indexOf({NAN}) >= 0, Number.isNaN(line.y[line.x.indexOf({NAN})])]; }}"
    )
    assert gap == [True, True]


def test_the_link_of_an_alert_leads_to_steps_role_and_samples_of_its_finding(visit: Visits, site: Site) -> None:
    page = visit(f"/runs/sick?finding={finding_id(site, 'nonfinite')}")
    expect(page.locator(".finding.chosen")).to_contain_text("nonfinite")
    expect(page.locator("#samples-title")).to_have_text(f"Samples at step {NAN}")
    expect(page.locator("table.samples tbody tr")).to_have_count(1)
    drawn(page)
    page.wait_for_function(f"() => [...new Set(({RANGES})())].join() === '208-235'")


def test_a_link_with_everything_in_it_restores_everything(visit: Visits) -> None:
    page = visit("/runs/sick?metric=gradient&from=150&to=200&view=roles&axis=log&step=160&role=verifier&flip=modules")
    expect(page.locator(".switch a.chosen").first).to_have_text("Roles side by side")
    expect(page.locator("#filter")).to_have_value("gradient")
    expect(page.locator(".columns").first).to_contain_text("planner")
    page.wait_for_function(
        f"() => {{ const plot = document.querySelector('{PLOTS}'); const layout = plot?._fullLayout;"
        " return layout?.yaxis.type === 'log' && layout.xaxis3 && Math.round(layout.xaxis3.range[0]) === 150; }"
    )
    expect(page.locator("#samples-title")).to_have_text("Samples at step 160")
    expect(page.locator("table.samples tbody tr")).to_have_count(1)
    expect(page.locator("#zoom")).to_contain_text("show all steps")


def test_samples_are_text_never_markup(visit: Visits) -> None:
    page = visit("/runs/sick?step=240&role=searcher")
    expect(page.locator("table.samples pre").nth(1)).to_contain_text("<img src=x onerror=")
    assert page.locator("table.samples img, table.samples b").count() == 0
    assert page.evaluate("document.body.dataset.owned") is None


def test_a_long_sample_opens_where_the_reader_asks_for_it(visit: Visits) -> None:
    page = visit("/runs/sick?step=240&role=verifier")
    page.get_by_text("show all").click()
    expect(page.locator("details[open] > pre")).to_contain_text("and so on and so on")


def test_dark_follows_the_system_and_the_toggle_is_remembered(visit: Visits) -> None:
    page = visit("/runs/sick", theme="dark")
    drawn(page)
    colour = f"() => document.querySelector('{PLOTS}')._fullLayout.font.color"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(colour) == "#b3bcc8"
    page.get_by_role("button", name="Switch between light and dark").click()
    page.wait_for_function(f"() => ({colour})() === '#4a5361'")
    page.reload()
    drawn(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("localStorage.clear()")


def test_an_unknown_run_says_so_and_leads_back(visit: Visits) -> None:
    page = visit("/runs/no-such-run")
    expect(page.get_by_role("heading", name="No such run")).to_be_visible()
    page.get_by_role("link", name="See all runs").click()
    expect(page.locator("tbody tr").first).to_be_visible()


def test_no_page_is_wider_than_the_window_however_long_its_names(visit: Visits, site: Site) -> None:
    word = "endless" * 40
    points = Block()
    points.add(Series("grad_norm", word, role=word, scope=word), 1, math.nan, 0.0)
    points.add(Series(f"my/{word}", f"my/{word}"), 1, 1.0, 0.0)
    sample = Sample(step=1, role=word, agent=word, prompt=word, output=word, rewards={word: 1.0})
    site.trainer("long", word).log(points, [sample], [Checkpoint(step=1, uri=word, metrics={word: 1.0})])
    assert site.collector.watching.wait_until_judged(10)
    for path, shown in (("/runs/long", ".finding"), ("/runs/long?view=roles", ".columns"), ("/", "table.runs")):
        page = visit(path)
        expect(page.locator(shown).first).to_be_visible()
        for width in (1400, 1000, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_chart_is_told_in_words_and_the_page_has_its_landmarks(page: Page) -> None:
    drawn(page)
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.locator(one).count() for one in ("main", "header", "h1")] == [1, 1, 1]
    said = "Gradient norm of planner, searcher, verifier, steps 0 to 259; 3 non-finite; 3 beyond the axis, the farthest 80; "
    found = "findings: ◆ searcher norm spike @ 180, ◆ searcher nonfinite @ 220"
    expect(page.locator("figure.chart").first).to_have_attribute("aria-label", said + found)


def test_keys_alone_lead_to_a_finding_and_back(page: Page) -> None:
    page.locator("body").press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator(".finding a.what").first.press("Enter")
    expect(page.locator(".finding.chosen")).to_be_visible()
    page.locator(".finding.chosen a.what").press("Enter")
    expect(page.locator(".finding.chosen")).to_have_count(0)


def test_sections_load_when_they_are_opened_and_the_filter_finds_the_rest(page: Page) -> None:
    assert "Learning rate" not in page.locator(".chart .name").all_inner_texts()
    page.get_by_text("Progress and speed (1)").click()
    expect(page.locator(".chart .name", has_text="Learning rate")).to_be_visible()
    page.locator("#filter").fill("std")
    expect(page.locator(".chart .name")).to_have_text(["Reward (std)"])
