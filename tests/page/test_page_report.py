"""The benchmark's page in the browser: one file, both themes, a phone's width, losses seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_steps import fits

from bench_log import mixed
from benchmarks import page, run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    log = mixed(folder)
    path = folder / "report.html"
    path.write_text(page.page(log, run.sections(log), "2026-01-31"))
    (folder / "runs.jsonl").unlink()
    return path


def test_one_file_and_nothing_fetched(opened: Callable[..., Any], report: Path) -> None:
    visit = opened(report.as_uri())
    assert visit.evaluate("performance.getEntriesByType('resource').length") == 0
    assert visit.evaluate("document.scripts.length") == 0
    assert visit.title() == "BigSAP, measured"
    for selector in ("figure svg path", "table.contest td", ".tile"):
        box = visit.locator(selector).first.bounding_box()
        assert box
        assert box["width"] * box["height"] > 100


def test_losses_are_seen(opened: Callable[..., Any], report: Path) -> None:
    visit = opened(report.as_uri())
    assert visit.locator("figure").first.is_visible()
    lost, won = visit.locator("td.lost"), visit.locator("td.won")
    grounds = [at.first.evaluate("e => getComputedStyle(e).backgroundColor") for at in (lost, won)]
    assert grounds[0] != grounds[1]
    assert visit.get_by_role("listitem").filter(has_text="2.5\u00d7 slower").count() == 4


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_widths_themes_and_rules_of_access(
    opened: Callable[..., Any], report: Path, theme: str, width: int
) -> None:
    visit = opened(report.as_uri(), width=width, theme=theme)
    visit.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert fits(visit)
    # Its own policy allows no script from elsewhere: axe is run by the browser itself.
    found = Axe().run(visit)
    assert found.violations_count == 0, found.generate_report()
    ground = visit.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(int(v) for v in ground[4:-1].split(",")[:3]) > 380
    assert bright == (theme == "light")
