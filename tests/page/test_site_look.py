"""The site in a real browser, opened as files: phone width, both themes, axe, the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the dev extra")

pytestmark = pytest.mark.slow
# One of each kind: cards, code and its output, two columns, signatures and wide tables, pictures, tables
# made from a log, the search.
SAMPLE = (
    "index",
    "start/tutorial",
    "coming_from/scipy",
    "reference/solve",
    "how",
    "benchmarks/index",
    "search",
)
# The themes differ in colours only, so each is looked at in one width.
LOOKS = [(360, "light"), (1280, "dark")]


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_pages_pass_axe_and_fit_the_width(site, opened: Callable[..., Any], width, theme):
    page = opened(f"{site.as_uri()}/index.html", width=width, theme=theme, ready=False)
    found = []
    for name in SAMPLE:
        page.goto(f"{site.as_uri()}/{name}.html")
        page.locator("#furo-main-content h1").first.wait_for()
        beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert beyond <= 0, f"{name}: {beyond} pixels too wide"
        for violation in axe.Axe().run(page, options={"preload": False}).response["violations"]:
            some = [node["html"][:150] for node in violation["nodes"][:3]]
            found.append(f"{name}: {violation['id']}: {len(violation['nodes'])}: {some}")
    assert not found, "\n".join(found)


def test_every_page_fits_a_phone(site, opened):
    page = opened(f"{site.as_uri()}/index.html", width=360, ready=False)
    files = sorted(site.rglob("*.html"))
    assert len(files) >= 35
    for file in files:
        page.goto(file.as_uri())
        beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert beyond <= 0, f"{file.name}: {beyond} pixels too wide"


def test_the_theme_follows_the_system(site, opened):
    def background(theme: str) -> str:
        page = opened(f"{site.as_uri()}/index.html", theme=theme, ready=False)
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert background("light") != background("dark")


def test_search_works_without_a_server(site, opened):
    page = opened(f"{site.as_uri()}/index.html", ready=False)
    page.locator("input[name=q]").first.fill("caliper")
    page.keyboard.press("Enter")
    hit = page.locator("#search-results li a").first
    hit.wait_for()
    assert "matching" in page.locator("#search-results").inner_html()
    hit.click()
    page.wait_for_url(lambda url: "/search.html" not in url)
    page.locator("#furo-main-content h1").first.wait_for()
    assert "caliper" in page.locator("#furo-main-content").inner_text().lower()
