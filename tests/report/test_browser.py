"""The page in a real browser: at the width of a desk and of a telephone, light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import graphopt
from graphopt.report.changes import compare
from graphopt.report.render import write_page
from graphopt.report.view import Page, Subject
from tests.report import browser
from tests.report.pages import bench_page, chain, graph_of
from tests.test_api import grouped

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")

LOOKS = [(width, scheme) for width in (1280, 375) for scheme in ("light", "dark")]

CUT_OFF = """[...document.querySelectorAll(".plot > svg text")].filter((text) => {
  const [inner, outer] = [text, text.closest("[data-chart]")].map((each) => each.getBoundingClientRect());
  return inner.left < outer.left - 1 || inner.right > outer.right + 1;
}).map((text) => text.textContent)"""
"""Texts of charts that begin before their frames or end behind them."""


@pytest.fixture(scope="module")
def chromium():
    found = browser.find()
    if found is None:
        pytest.skip("no Chromium here: python -m tests.report.browser fetches one")
    with playwright.sync_playwright() as started:
        try:
            # No sandbox: it does not work in most containers, and the pages are our own.
            running = started.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        except playwright.Error as error:
            pytest.skip(f"{found} does not start: {str(error).splitlines()[0]}")
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of a real, measured optimisation; a benchmark with hostile names; a model of 1,200 nodes."""
    folder = tmp_path_factory.mktemp("pages")
    found = {name: folder / f"{name}.html" for name in ("optimised", "bench", "large")}
    graphopt.optimize(
        grouped(folder / "m.onnx"), rules=["grouped-conv"], budget=1, dims={"batch": 1}, report=found["optimised"]
    )
    write_page(bench_page(), found["bench"])
    view = compare(graph_of(chain(400)), graph_of(chain(400, relu="Tanh")))
    write_page(Page("large", [Subject("large", "Nothing was measured.", graph=view)]), found["large"])
    return found


@contextmanager
def opened(chromium, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[object]:
    """The page on the screen; fails on an error in its scripts and on any request but the file itself."""
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    playwright.expect(page.locator(".plot:empty")).to_have_count(0)
    try:
        yield page
        assert wrong == []
        if "GRAPHOPT_SCREENSHOTS" in os.environ:
            page.screenshot(
                path=Path(os.environ["GRAPHOPT_SCREENSHOTS"]) / f"{path.stem}-{width}-{scheme}.png", full_page=True
            )
    finally:
        page.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", ["optimised", "bench", "large"])
def test_it_fits_and_a_change_is_shown(chromium, pages, name, width, scheme):
    with opened(chromium, pages[name], width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 384) == (scheme == "dark")

        graph = page.locator(".graph").first
        graph.get_by_role("button", name="Change 2", exact=True).click()
        assert graph.locator(".focus h3").first.inner_text().startswith("Change 2 of ")
        before, after = graph.locator(".view").all()
        assert before.locator(".node.removed").count() >= 1 and before.locator(".node.added").count() == 0
        assert after.locator(".node.added").count() >= 1 and after.locator(".node.removed").count() == 0
        # What is drawn can be read and lies inside its frame, however narrow that is.
        box, frame = after.locator(".node.added").first.bounding_box(), after.bounding_box()
        assert box["height"] > 12 and frame["x"] - 1 <= box["x"] <= frame["x"] + frame["width"]
        # The same letters on both sides.
        letters = [set(view.locator(".tag text").all_text_contents()) for view in (before, after)]
        assert "A" in letters[0] and letters[0] == letters[1]
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_the_change_has_the_room_of_the_list(chromium, pages):
    with opened(chromium, pages["optimised"]) as page:
        page.emulate_media(media="print")
        explorer, focus = page.locator(".explorer").bounding_box(), page.locator(".focus").bounding_box()
        assert focus["width"] == explorer["width"] and not page.locator(".list").first.is_visible()


def test_curves_can_be_read_on_a_telephone(chromium, tmp_path):
    drawn = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 400"><path d="M0 0L900 400"/></svg>'
    write_page(Page("curves", [Subject("curves", "Nothing was measured.", drawing=drawn)]), tmp_path / "curves.html")
    with opened(chromium, tmp_path / "curves.html", 400) as page:
        assert page.locator("img").bounding_box()["width"] > 700
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.emulate_media(media="print")
        assert page.locator("img").bounding_box()["width"] < 400


def test_a_click_on_the_map_shows_the_change(chromium, pages):
    with opened(chromium, pages["large"]) as page:
        spots = page.locator(".map .spot")
        assert spots.count() == 2 * 134  # each change in either graph
        spots.nth(100).click(force=True)
        assert page.locator(".focus h3").first.inner_text().startswith("Change 101 of 134")
        assert page.get_by_role("button", name="Change 101", exact=True).get_attribute("aria-current") == "true"


def test_a_node_tells_all_by_keyboard(chromium, pages):
    with opened(chromium, pages["optimised"]) as page:
        node = page.locator(".view .node.added").first
        node.focus()
        page.keyboard.press("Enter")
        detail = page.locator(".detail").first
        assert detail.is_visible()
        text = detail.inner_text()
        for word in ("Conv", "Made by", "merge", "group=", "f32[64,"):
            assert word in text, word
        # What it stands for lights up in the other graph.
        assert page.locator(".view").first.locator(".node.twin").count() == 1


def test_everything_is_within_reach_of_the_tab_key(chromium, pages):
    with opened(chromium, pages["optimised"]) as page:
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached |= set(page.evaluate("[document.activeElement.tagName, ...document.activeElement.classList]"))
        assert {"SUMMARY", "INPUT", "SELECT", "BUTTON", "map", "list", "view", "node"} <= reached


def test_a_node_is_found_by_name(chromium, pages):
    with opened(chromium, pages["large"]) as page:
        page.get_by_role("searchbox").fill("conv399")
        page.locator(".found button").first.click()
        assert page.locator(".focus h3").first.inner_text().startswith("Conv conv399")
        assert page.locator(".view .node.chosen").count() == 2
        page.get_by_role("searchbox").fill("no such thing")
        assert page.locator(".found").inner_text() == "no such node"


def test_hostile_names_stay_names(chromium, pages):
    with opened(chromium, pages["bench"]) as page:
        for button in page.locator(".chips button").all()[:3]:
            button.click()
        page.locator(".view .node").first.click()
        for summary in page.locator("summary").all():
            summary.click()
        assert page.title() == "bench - graphopt"
        assert page.locator("main img").count() == 0
        assert page.locator(".detail").first.inner_text().count("</script>") >= 1


def test_steps_lead_to_their_places(chromium, pages):
    with opened(chromium, pages["bench"]) as page:
        page.locator("[data-steps='0'] summary").click()
        page.locator("[data-steps='0'] tbody tr").nth(41).wait_for()
        page.get_by_role("button", name="Show step 7 in the graph").first.click()
        assert page.locator(".focus h3").first.inner_text().startswith("Change 3 of ")


def test_charts_follow_the_width(chromium, pages):
    widest = (
        "Math.max(...[...document.querySelectorAll('.plot > svg')].map((svg) => svg.getBoundingClientRect().width))"
    )
    with opened(chromium, pages["optimised"]) as page:
        assert page.evaluate(widest) > 500
        page.set_viewport_size({"width": 400, "height": 900})
        for _ in range(100):  # playwright's own waiting needs eval, which the page forbids
            if page.evaluate(widest) < 400:
                break
            page.wait_for_timeout(20)
        assert page.evaluate(widest) < 400
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        # Where nothing is seen of it, as in a folded part of a notebook, there is no room to draw in.
        for shown in ("none", ""):
            page.evaluate(f"document.body.style.display = '{shown}'")
            page.wait_for_timeout(100)
        assert 100 < page.evaluate(widest) < 400


def test_without_scripts_the_tables_remain(chromium, pages):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["bench"].as_uri())
    assert "need JavaScript" in page.locator("noscript").inner_text()
    page.locator("summary", has_text="Variants as a table").first.click()
    assert page.locator("figure table").first.is_visible()
    context.close()
