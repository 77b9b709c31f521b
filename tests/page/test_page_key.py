"""A service with keys: the page asks for one, keeps it for the tab, says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from bigsap_server.api.app import create_app
from bigsap_server.auth import hashed
from page_service import Service
from page_steps import choose, paste, submit, wait_text

from apps import served, settings_in

KEY = "bsk_test_key_of_the_page"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("locked")
    keys = folder / "keys.toml"
    keys.write_text(f'[alice]\nhash = "{hashed(KEY)}"\nscopes = ["read", "submit"]\n')
    found = Service()
    with served(create_app(settings_in(folder / "data", keys=keys))) as found.url:
        yield found


def enter(page: Any, key: str) -> None:
    dialog = page.get_by_role("dialog", name="Key")
    dialog.wait_for()
    field = dialog.get_by_label("Key", exact=True)
    assert field.evaluate("node => node === document.activeElement")
    field.fill(key)
    page.keyboard.press("Enter")


def test_key_entry_stream_and_download(opened: Callable[..., Any], locked: Service) -> None:
    page = opened(locked.url, ready=False)
    page.quiet = False
    enter(page, "wrong")
    wait_text(page, "#key-reason", "unknown key|not known")
    enter(page, KEY)
    page.locator("main[data-page=new]").wait_for()
    choose(page, "A matrix")
    paste(page, "Cost matrix", "4 1 3\n2 0 5\n3 2 2")
    wait_text(page, "#estimate", "Memory")
    submit(page)
    wait_text(page, "#verdict", "The assignment costs 5")
    wait_text(page, "#job-log", "The job is running")  # the stream carries the key
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download col4row as CSV").click()
    assert waiting.value.path().read_text().split()[-1].endswith("2")

    page.reload()
    wait_text(page, "#verdict", "The assignment costs 5")  # kept for the tab
    assert KEY not in page.evaluate("JSON.stringify(localStorage)")
    page.get_by_role("button", name="Key").click()
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_role("dialog", name="Key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_without_a_key_the_page_says_so(opened: Callable[..., Any], locked: Service) -> None:
    page = opened(f"{locked.url}/#/jobs", ready=False)
    page.quiet = False
    page.get_by_role("dialog", name="Key").wait_for()
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    wait_text(page, "[role=alert]", "key")


def test_a_key_that_no_header_can_carry_is_not_kept(opened: Callable[..., Any], locked: Service) -> None:
    page = opened(locked.url, ready=False)
    page.quiet = False
    enter(page, "ключ")
    wait_text(page, "#key-reason", "cannot be sent")
    assert page.evaluate("sessionStorage.length") == 0
    assert Axe().run(page).response["violations"] == []
    enter(page, KEY)
    page.locator("main[data-page=new]").wait_for()
    page.get_by_role("button", name="Key").click()
    enter(page, "ключ")
    wait_text(page, "#key-reason", "cannot be sent")
    page.keyboard.press("Escape")
    page.reload()
    page.locator("main[data-page=new]").wait_for()  # with the key from before
