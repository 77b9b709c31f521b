"""The list of hundreds of jobs: pages, filters, what is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from page_service import Service
from page_steps import fits, wait_text, waiting_job

from gate import Gate


def names(page: Any) -> list[str]:
    return [
        link.rsplit("/", 1)[1]
        for link in page.locator("tbody th a").evaluate_all("links => links.map((link) => link.hash)")
    ]


def turned(page: Any, button: str, before: list[str]) -> list[str]:
    page.get_by_role("button", name=button).click()
    page.wait_for_function(
        "first => document.querySelector('tbody th a').hash !== first", arg=f"#/jobs/{before[0]}"
    )
    return names(page)


def test_hundreds_of_jobs_page_by_page(opened: Callable[..., Any], service: Service) -> None:
    page = opened(f"{service.url}/#/jobs")
    page.locator("tbody tr").nth(49).wait_for()
    page.get_by_label("State").select_option("cancelled")
    wait_text(page, "tbody tr >> nth=0", "cancelled")
    pages = [names(page)]
    while page.get_by_role("button", name="Older").get_attribute("aria-disabled") == "false":
        assert len(pages[-1]) == 50
        assert fits(page)
        pages.append(turned(page, "Older", pages[-1]))
    seen = [job for found in pages for job in found]
    assert len(seen) >= 300
    assert len(set(seen)) == len(seen)
    assert turned(page, "Newer", pages[-1]) == pages[-2]


def test_filters(opened: Callable[..., Any], service: Service) -> None:
    page = opened(f"{service.url}/#/jobs")
    page.get_by_label("Label").fill("project x")
    status = page.locator("#list-status").filter(has_text=re.compile("^Jobs 1 to 30"))
    status.wait_for()
    assert page.locator("tbody tr").count() == 30
    assert page.locator("tbody th a").all_inner_texts() == ["project x"] * 30
    page.get_by_label("State").select_option("failed")
    page.get_by_text("No jobs here").wait_for()
    assert page.get_by_role("link", name="Submit one").is_visible()


def test_a_page_of_the_list_is_one_request(opened: Callable[..., Any], service: Service) -> None:
    page = opened(f"{service.url}/#/jobs")
    page.locator("tbody tr").nth(49).wait_for()
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    first = names(page)
    second = turned(page, "Older", first)
    # The page looks again after a while, at whichever it shows.
    (found,) = {url for url in asked if not url.endswith("/v1/jobs?page_size=50")}
    assert re.search(r"/v1/jobs\?page_size=50&page_token=\w+$", found)
    assert len(second) == 50


def test_the_list_follows_a_job(opened: Callable[..., Any], service: Service, gate: Gate) -> None:
    job = service.submit(waiting_job(gate, "followed"))
    page = opened(f"{service.url}/#/jobs")
    line = page.locator("tbody tr").filter(has_text=job)
    line.get_by_text(re.compile("starting|running")).wait_for()
    link = line.get_by_role("link")
    link.focus()
    service.cancel(job)
    line.get_by_text(re.compile("cancelled|finished")).wait_for()
    assert link.evaluate("node => node === document.activeElement")  # not lost by the redrawing
    link.press("Enter")
    page.get_by_role("heading", level=1, name="followed").wait_for()


def test_what_is_proved_only_to_within_its_gap_looks_so(opened: Callable[..., Any], service: Service) -> None:
    """Neither finished as others nor failed, in the list, on its page and in words."""
    job = service.submit({"cost": {"type": "array", "values": [[4, 1], [2, 0]]}, "label": "odd"})
    service.wait_for(job, "succeeded")
    page = opened(f"{service.url}/#/jobs", ready=False)

    def told(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        for one in found.get("jobs", [found]):
            if job in (one.get("id"), one.get("job")):
                news = {"status": "imprecise", "success": False, "gap": 0.125}
                one |= news if "job" in one else {"outcome": one["outcome"] | news}
        route.fulfill(response=answer, json=found)

    page.route(re.compile(rf"/v1/jobs(\?|/{job}(/result)?$)"), told)
    page.reload()
    row = page.locator("tbody tr", has_text="odd")
    row.locator(".badge.imprecise").wait_for()
    assert row.locator(".badge").inner_text() == "imprecise"
    row.get_by_role("link").click()
    wait_text(page, "#verdict", "proved only to within 0.125")
    assert page.locator("#job-state .badge.imprecise").count() == 1
    assert page.locator("#verdict.warn").count() == 1
    assert not page.get_by_role("button", name="Resume").is_visible()
    page.get_by_text("proof of the bound").wait_for()
    page.get_by_role("button", name="Download u as npy").wait_for()
    assert page.get_by_role("button", name="Download u_low as npy").count() == 0
    page.unroute_all(behavior="ignoreErrors")  # the list may be asking at this moment
