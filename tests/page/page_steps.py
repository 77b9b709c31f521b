"""What people do on the page, by the names that a screen reader reads out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np


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


def slow_job(label: str | None = None, rows: int = 30_000) -> dict[str, Any]:
    """Minutes of work unless it is stopped: rows without structure, and no room to keep them.

    With 6,000 or 9,000 rows the search begins after seconds, and lasts some.
    """
    found: dict[str, Any] = {
        "shape": [rows, rows],
        "cost": {
            "type": "expression",
            "code": "(sin(12.9898*i + 78.233*j + 0.001*i*j) * 43758.5453) % 1",
        },
        "options": {"method": "ssp", "checkpoint_s": 1, "threads": 1, "cache": "8MiB"},
    }
    return found | ({"label": label} if label else {})


def wait_text(page: Any, selector: str, pattern: str) -> str:
    found = page.locator(selector).filter(has_text=re.compile(pattern))
    found.wait_for()
    return str(found.inner_text())


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.1)
    return found


def fits(page: Any) -> bool:
    """Whether nothing makes the page scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
