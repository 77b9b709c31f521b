"""What is wrong is said in a sentence, and the field is marked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from page_service import Service
from page_steps import choose, give, paste, points, wait_text


def press(page: Any) -> None:
    page.get_by_role("button", name="Submit the job").click()


def described(page: Any, field: Any) -> str:
    """The texts that a screen reader adds to the field."""
    ids = field.get_attribute("aria-describedby").split()
    return " ".join(page.locator(f"#{one}").inner_text() for one in ids)


def test_an_option_that_the_service_refuses(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    page.quiet = False
    choose(page, "A matrix")
    paste(page, "Cost matrix", "1 2\n3 4")
    page.get_by_text("Options", exact=True).click()
    gap = page.get_by_label("Gap")
    gap.fill("-1")
    page.locator("[aria-invalid=true]").wait_for()  # by the dry run, before submission
    assert gap.get_attribute("aria-invalid") == "true"
    press(page)
    alert = wait_text(page, "[role=alert] .notice", "/options/gap")
    assert re.search(r"[Gg]reater than or equal to 0", alert)
    assert "Traceback" not in alert
    assert re.search(r"[Gg]reater than or equal to 0", described(page, gap))
    assert gap.evaluate("node => node === document.activeElement")
    gap.fill("0")
    assert gap.get_attribute("aria-invalid") is None
    wait_text(page, "#estimate", "Memory")


def test_an_expression_that_does_not_compile(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    page.quiet = False
    choose(page, "An expression")
    code = page.get_by_label("Cost of row i and column j")
    code.fill("__import__('os').system('x')")
    page.get_by_label("Rows (n)").fill("3")
    page.get_by_label("Columns (m)").fill("3")
    press(page)
    wait_text(page, "[role=alert] .notice", "code")
    assert code.get_attribute("aria-invalid") == "true"
    assert "#/jobs/" not in page.url


def test_missing_and_unreadable_numbers(opened: Callable[..., Any], service: Service, tmp_path: Any) -> None:
    page = opened(service.url)
    press(page)
    first = page.get_by_role("group", name=re.compile("First set"))
    assert "choose a file or paste them" in first.get_by_role("status").inner_text()
    assert first.evaluate("node => node.contains(document.activeElement)")
    file = first.locator("input[type=file]")
    assert file.get_attribute("aria-invalid") == "true"
    assert "choose a file or paste them" in described(page, file)
    (tmp_path / "bad.csv").write_text("1,2\n3,x\n")
    give(page, "First set", str(tmp_path / "bad.csv"))
    said = first.get_by_role("status").inner_text()
    assert said == "bad.csv, line 2, column 2: “x” is not a number."
    assert file.get_attribute("aria-invalid") == "true"
    assert "line 2, column 2" in described(page, file)
    (tmp_path / "good.csv").write_text("1,2\n3,4\n")
    give(page, "First set", str(tmp_path / "good.csv"))
    assert file.get_attribute("aria-invalid") is None
    assert "2 points" not in described(page, file)  # the help alone


def test_sets_of_different_dimensions(
    opened: Callable[..., Any], service: Service, written: Callable[..., str]
) -> None:
    page = opened(service.url)
    give(page, "First set", written("x.csv", points(1, 5, 2)))
    give(page, "Second set", written("y.csv", points(1, 5, 3)))
    second = page.get_by_role("group", name=re.compile("Second set"))
    second.get_by_text("they must agree").wait_for()
    press(page)
    assert "#/jobs/" not in page.url
    give(page, "Second set", written("better.csv", points(1, 5, 2)))
    wait_text(page, "#estimate", "5 rows . 5 columns")


def test_a_document_that_is_no_json(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    page.quiet = False
    choose(page, "A JSON document")
    text = page.get_by_label("Job document (JSON)")
    text.fill('{"cost": ')
    press(page)
    assert "This is not JSON" in described(page, text)
    text.fill('{"cost": {"type": "points", "metric": "euclid", "x": [[1]], "y": [[2]]}}')
    press(page)
    wait_text(page, "[role=alert] .notice", "/cost/metric")


def test_a_job_that_is_not_there(opened: Callable[..., Any], service: Service) -> None:
    page = opened(f"{service.url}/#/jobs")
    page.quiet = False
    page.goto(f"{service.url}/#/jobs/job_nowhere")
    wait_text(page, "[role=alert]", "job_nowhere|no such")
    page.get_by_role("link", name="To the list of jobs").click()
    page.get_by_role("heading", level=1, name="Jobs").wait_for()
