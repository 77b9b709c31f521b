"""Widths, themes, contrast, names for screen readers, and nothing from other origins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from page_service import Service
from page_steps import fits, points, wait_text, waiting_job

from gate import Gate

PAGE = Path(__file__).parents[2] / "server" / "bigsap_server" / "page"


@pytest.fixture(scope="module")
def done(service: Service) -> str:
    """A finished job of points in the plane."""
    body = {
        "cost": {"type": "points", "x": points(7, 200).tolist(), "y": points(8, 200).tolist()},
        "label": "a label that is long enough to need more than one line on a phone, surely",
    }
    job = service.submit(body)
    service.wait_for(job, "succeeded")
    return job


@pytest.fixture(scope="module")
def failed(service: Service) -> str:
    job = service.submit({"shape": [50, 50], "cost": {"type": "expression", "code": "sqrt(40 - i) + j"}})
    service.wait_for(job, "failed")
    return job


@pytest.fixture(scope="module")
def running(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    gate = Gate(tmp_path_factory.mktemp("gate"))
    job = service.submit(waiting_job(gate, "slow"))
    service.wait_for(job, "running")
    yield job
    service.cancel(job)


def everything(page: Any, service: Service, done: str, running: str, failed: str) -> Any:
    """Each page in turn, with all that can be unfolded unfolded."""
    unfold = "for (const one of document.querySelectorAll('details')) one.open = true"
    page.goto(f"{service.url}/#/new")
    page.get_by_role("heading", level=1, name="New job").wait_for()
    page.evaluate(unfold)
    page.get_by_label("Gap").fill("no number")
    page.get_by_role("button", name="Submit the job").click()
    page.locator(".error:visible").first.wait_for()
    yield "points"
    for kind in ("A matrix", "An expression", "A JSON document"):
        page.get_by_role("radio", name=kind).check()
        page.evaluate(unfold)
        yield kind
    page.goto(f"{service.url}/#/jobs")
    page.locator("tbody tr").nth(9).wait_for()
    yield "list"
    page.goto(f"{service.url}/#/jobs/{done}")
    page.locator("#matching[data-drawn='200']").wait_for()
    page.evaluate(unfold)
    yield "job"
    page.goto(f"{service.url}/#/jobs/{running}")
    wait_text(page, "#job-facts", r"Rows evaluated\s*[1-9]")
    page.evaluate(unfold)
    yield "running"
    page.goto(f"{service.url}/#/jobs/{failed}")
    wait_text(page, "#job-reason", "not a number")
    page.evaluate(unfold)
    yield "failed"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete this job?").wait_for()
    yield "dialog"
    page.keyboard.press("Escape")


def test_contrast_names_roles_and_no_width_that_scrolls_sideways(
    opened: Callable[..., Any], service: Service, done: str, running: str, failed: str
) -> None:
    page = opened(service.url, width=320)
    for name in everything(page, service, done, running, failed):
        missing = page.evaluate(
            "[...document.querySelectorAll('[aria-describedby]')].flatMap(node =>"
            "node.getAttribute('aria-describedby').split(' ').filter(id =>"
            "!document.getElementById(id)).map(() => node.outerHTML))"
        )
        assert missing == [], f"{name}: described by nothing"
        # The themes differ in colours only.
        for theme, width, options in (("light", 320, {}), ("dark", 800, {"runOnly": ["color-contrast"]})):
            # Without motion colours change at once, not by and by.
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": 900})
            found = Axe().run(page, options=options).response["violations"]
            said = [(v["id"], [node["html"] for node in v["nodes"]]) for v in found]
            assert not said, f"{name}, {theme}: {said}"
            assert fits(page), f"{name} at {width} px"


def test_strict_policy_and_only_own_files(opened: Callable[..., Any], service: Service) -> None:
    answer = service.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<style" not in answer.text
    assert " style=" not in answer.text
    assert not re.search(r"<script(?![^>]* src=)", answer.text)
    page = opened(service.url)
    # The policy is in force: what an attacker could put into the page does not run.
    page.quiet = None
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.run = 1';"
        "document.body.append(s); }"
    )
    assert page.evaluate("window.run") is None


def test_what_a_job_is_called_is_never_markup(opened: Callable[..., Any], service: Service) -> None:
    label = "<img src=x onerror=alert(1)>"
    job = service.submit({"cost": {"type": "array", "values": [[1]]}, "label": label})
    service.wait_for(job, "succeeded")
    page = opened(f"{service.url}/#/jobs/{job}")
    assert page.get_by_role("heading", level=1).inner_text() == label
    page.goto(f"{service.url}/#/jobs")
    wait_text(page, "tbody", re.escape(label))
    assert page.locator("main img").count() == 0


def test_the_api_is_shown_without_the_network(opened: Callable[..., Any], service: Service) -> None:
    page = opened(f"{service.url}/docs", ready=False)
    assert page.url == f"{service.url}/docs/"
    wait_text(page, "#api", "Submit a job")
    wait_text(page, "#api", "/v1/cost-types")


def test_vendored_files_come_with_their_licences_and_nothing_is_named_that_is_elsewhere() -> None:
    for folder in (folder for folder in (PAGE / "vendor").iterdir() if folder.is_dir()):
        licence = (folder / "LICENSE").read_text()
        assert "Permission is hereby granted" in licence or "Apache License" in licence
        assert f"`{folder.name}/`" in (PAGE / "vendor" / "README.md").read_text()
    text = "".join(
        p.read_text()
        for p in PAGE.rglob("*")
        if p.suffix in (".html", ".css", ".js") and "vendor" not in p.parts
    )
    assert not re.search(r"(src|href|url)[=(]\s*[\"']?(https?:)?//", text)


BOUNDS = """async ([url, values]) => {
  const { limit, distance } = await import(url + "/js/words.js");
  return values.map((value) => [limit(value, false), limit(value, true), distance(Math.abs(value))]);
}"""


def test_bounds_and_gaps_as_text_are_still_bounds(opened: Callable[..., Any], service: Service) -> None:
    rng = np.random.default_rng(3)
    values = (rng.normal(size=2000) * 10.0 ** rng.uniform(-200, 200, 2000)).tolist()
    values += [1 / 3, -1 / 3, 0.1, 999999999.9999999, 0.00099999999999999, 2**53 + 2.0, 12.0]
    shown = opened(service.url).evaluate(BOUNDS, [service.url, values])
    for value, texts in zip(values, shown, strict=True):
        below, above, distance = (float(text.replace(",", "")) for text in texts)
        assert below <= value <= above
        assert below == pytest.approx(value, rel=2e-6)
        assert above == pytest.approx(value, rel=2e-6)
        assert abs(value) <= distance <= 1.02 * abs(value)


LARGE = """async ([url, texts]) => {
  const { limit, distance } = await import(url + "/js/words.js");
  return texts.map((text) => JSON.parse(text)).map((value) =>
    [limit(value, false, value), limit(value, true, value), distance(Math.abs(value))]);
}"""


def test_integers_that_javascript_rounds_are_still_bounds(
    opened: Callable[..., Any], service: Service
) -> None:
    """JSON.parse makes 10**18 of 10**18 - 1, which is a lower bound that 10**18 is not."""
    values = [
        sign * (size + shift) for size in (10**16, 10**18, 2**60) for shift in (-1, 0, 1) for sign in (-1, 1)
    ]
    shown = opened(service.url).evaluate(LARGE, [service.url, list(map(str, values))])
    for value, texts in zip(values, shown, strict=True):
        below, above, distance = (Fraction(text.replace(",", "")) for text in texts)
        assert below <= value <= above
        assert abs(value) <= distance


VERDICT = """async ([url, summaries]) => {
  const { verdict } = await import(url + "/js/result.js");
  return summaries.map((summary) => verdict(summary, { k_best: summary.asked }).join(" "));
}"""


def test_what_is_said_of_an_outcome_is_so(opened: Callable[..., Any], service: Service) -> None:
    common = {"shape": [2, 2], "n_assigned": 2, "certificate": {"certified": False}, "maximize": False}
    least = {"objective": 3, "bound": 3, "gap": 0, "status": "optimal", "stats": {"bottleneck": 2}}
    outcomes = [
        {**least, "stats": {}},
        least,
        {**least, "maximize": True},
        {**least, "status": "time_limit", "bound": 2, "gap": 1},
        {**least, "status": "time_limit", "bound": None, "gap": None, "stats": {}},
        {**least, "asked": 3, "k_best": None},
        {**least, "asked": 3, "k_best": {"count": 1, "complete": True, "costs": [3]}},
        {**least, "status": "imprecise", "objective": 10**18, "bound": 10**18 - 1, "gap": 1, "stats": {}},
        {**least, "asked": 3, "k_best": {"count": 1, "complete": False, "status": "cancelled", "costs": [3]}},
    ]
    said = opened(service.url).evaluate(VERDICT, [service.url, [common | one for one in outcomes]])
    assert (
        "This is the smallest cost possible: the duals prove that no assignment has a lower one." in said[0]
    )
    # Of a bottleneck only those with the smallest largest cost are compared.
    assert "Its largest cost of a pair is 2, and no assignment has a smaller one." in said[1]
    assert "smallest cost possible among those: the duals prove that none of them has a lower one." in said[1]
    assert "Its smallest cost of a pair is 2, and no assignment has a larger one." in said[2]
    assert "largest cost possible among those: the duals prove that none of them has a higher one." in said[2]
    assert "none of them has a lower cost than 2, so this one is within 1 of the best." in said[3]
    assert "The job stopped at its time limit: how far this one is from the best is not known." in said[4]
    assert "The job was stopped before its assignments were ranked." in said[5]
    assert "ranked" not in said[6]
    assert "no assignment has a lower cost than 9.999990e+17" in said[7]
    assert "Its ranking was stopped: the assignments ranked by then are the best, in order." in said[8]


CURVE = """async (url) => {
  const { Curves } = await import(url + "/js/charts.js");
  const curves = new Curves();
  document.body.append(curves.node);
  curves.add(1, { gap: 0.123456 });
  curves.add(2, { gap: 0.0123456 });
  curves.gap.draw();
  const text = curves.gap.node.textContent + curves.gap.node.outerHTML;
  curves.close();
  curves.node.remove();
  return text;
}"""


def test_the_curve_of_the_gap_rounds_it_up(opened: Callable[..., Any], service: Service) -> None:
    text = opened(service.url).evaluate(CURVE, service.url)
    assert "0.0124" in text
    assert "0.124" in text
    assert "0.0123" not in text
