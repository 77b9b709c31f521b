"""What people do on the page, by the names that a screen reader reads out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gate import Gate, gated_job


def points(seed: int, n: int, d: int = 2) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(0, 1, (n, d)).round(6)


def choose(page: Any, kind: str) -> None:
    page.get_by_role("radio", name=kind).check()


def give(page: Any, group: str, path: str) -> None:
    """Choose a file in the field set that begins with ``group`` and wait until it is read."""
    picker = page.get_by_role("group", name=re.compile(group))
    picker.locator("input[type=file]").set_input_files(path)
    picker.get_by_role("status").get_by_text(re.compile(r"\.$")).wait_for()


def paste(page: Any, group: str, text: str) -> None:
    picker = page.get_by_role("group", name=re.compile(group))
    picker.get_by_text("or paste numbers").click()
    picker.get_by_role("textbox").fill(text)


def submit(page: Any) -> str:
    """Press the button; the id of the job, whose page is then shown."""
    page.get_by_role("button", name="Submit the job").click()
    return arrived(page)


def arrived(page: Any) -> str:
    page.wait_for_url(re.compile(r"#/jobs/job_"))
    page.locator("main[data-page=job]").wait_for()
    return str(page.url.rsplit("/", 1)[1])


def waiting_job(gate: Gate, label: str) -> dict[str, Any]:
    """In a search of the first phase until the test opens the gate."""
    return gated_job(gate, after=600) | {"label": label}


def wait_text(page: Any, selector: str, pattern: str) -> str:
    found = page.locator(selector).filter(has_text=re.compile(pattern))
    found.wait_for()
    return str(found.inner_text())


def fits(page: Any) -> bool:
    """Whether nothing makes the page scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
