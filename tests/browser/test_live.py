"""What is streamed over HTTP is on the page by itself, within a second or so, and leaves the reader's view alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from browser.scenario import SPIKE, block
from browser.site import Site
from browser.visits import Visits
from playwright.sync_api import Page, expect

PLOTS = ".js-plotly-plot"
LAST_STEP = f"() => {{ const plot = document.querySelector('{PLOTS}'); return plot?._fullData?.[0]?.x?.at(-1) ?? -1; }}"
RANGES = f"() => [...document.querySelectorAll('{PLOTS}')].map(one => one._fullLayout.xaxis.range.map(Math.round).join('-'))"


def drag(page: Page, first: float, last: float) -> None:
    """Zoom the first chart to a part of its width."""
    box = page.locator(f"{PLOTS} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + first * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], box["y"] + 61, steps=5)
    page.mouse.up()


def test_the_first_run_appears_on_an_empty_page_and_its_steps_on_its_own(
    visit: Visits, site: Site, record_property: Callable[[str, object], None]
) -> None:
    page = visit("/")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(page.locator("#first-run")).to_contain_text("gradwatch.init")
    trainer = site.trainer("stream", "dr-mas")
    trainer.log(block(range(50)))
    row = page.locator("tbody tr")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("healthy")
    row.locator("td").nth(3).click()
    expect(page.locator("#newest-step")).to_have_text("49")
    page.wait_for_function(f"{LAST_STEP[:-1]}; }}")
    took = []
    for step in range(50, 56):
        trainer.log(block(range(step, step + 1)))
        committed = time.monotonic()
        page.wait_for_function(f"() => ({LAST_STEP})() === {step}", polling=20)
        took.append(time.monotonic() - committed)
    record_property("commit_to_chart_seconds", [round(one, 3) for one in took])
    assert statistics.median(took) < 3, took


def test_a_finding_comes_to_an_open_page(visit: Visits, site: Site) -> None:
    trainer = site.trainer("breaking")
    trainer.log(block(range(SPIKE)))
    page = visit("/runs/breaking")
    expect(page.get_by_text("No problem found so far.")).to_be_visible()
    expect(page.locator("#findings-title")).to_have_text("Findings (0)")
    trainer.log(block(range(SPIKE, SPIKE + 3)))
    expect(page.locator("#verdict")).to_contain_text(f"searcher broke first: norm spike in searcher/grad_norm, since step {SPIKE}")
    expect(page.locator(".finding").first).to_contain_text("spiked to 80")
    expect(page).to_have_title("breaking · critical · gradwatch")


def test_zoom_scroll_and_focus_outlive_news(visit: Visits, site: Site) -> None:
    trainer = site.trained("zoom", range(200))
    page = visit("/runs/zoom")
    page.wait_for_function(f"() => ({LAST_STEP})() === 199")
    drag(page, 0.25, 0.5)
    page.wait_for_function(f"() => new Set(({RANGES})()).size === 1 && location.search.includes('from=')")
    zoomed = page.evaluate(RANGES)
    page.locator("#filter").focus()
    page.evaluate("window.scrollTo(0, 250)")
    trainer.log(block(range(200, 220)))
    expect(page.locator("#newest-step")).to_have_text("219")
    trainer.log(block(range(220, 221)))
    expect(page.locator("#newest-step")).to_have_text("220")
    assert page.evaluate(RANGES) == zoomed
    assert page.evaluate("document.activeElement.id") == "filter"
    assert page.evaluate("window.scrollY") == 250
    page.get_by_text("show all steps").click()
    page.wait_for_function(f"() => ({RANGES})()[0].endsWith('222')")


def test_a_page_that_lost_the_collector_says_so_and_recovers(visit: Visits, site: Site) -> None:
    site.trained("lost", range(30))
    page = visit("/runs/lost", allowed="")
    expect(page.locator("#live")).to_have_text("live")
    site.stop()
    expect(page.locator("#live")).to_have_text("connection lost, retrying")
    site.start()
    expect(page.locator("#live")).to_have_text("live")
    again = site.trainer("lost")
    again.log(block(range(30, 32)))
    expect(page.locator("#newest-step")).to_have_text("31")


def test_a_page_that_has_just_come_is_asked_for_whatever_answer_is_due(visit: Visits) -> None:
    page = visit("/")
    expect(page.locator("#live")).to_have_text("live")
    asked = page.evaluate("() => { const ask = dash_clientside.gradwatch.ask; ask(1); return [typeof ask(2), typeof ask(0)]; }")
    assert asked == ["object", "number"]  # no_update while an answer is due, the time of asking
