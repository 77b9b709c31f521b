"""A headless Chromium on a service of this process. Skipped, with the reason, where there is no Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bigsap_server.api.app import create_app
from bigsap_server.costs.request import JobRequest
from bigsap_server.jobs.store import JobStore
from page_service import Relay, Service

from apps import served, settings_in
from gate import HANG_S
from process_groups import shared

playwright = pytest.importorskip("playwright.sync_api", reason="needs the dev extra's playwright")

FLAGS = [
    # Chromium refuses its sandbox to root, and containers refuse it to Chromium. Only our own
    # page is shown.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT = 1000 * HANG_S  # ms, for each single wait
OLD = JobRequest.model_validate({"shape": [2, 2], "cost": {"type": "array", "values": [[1, 2], [3, 4]]}})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The limit is for each test, not for the start and the compiling before the first.

    And the page's tests come first: they share a process, and at the end they would be waited for.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.timeout(600, func_only=True))
    items.sort(key=lambda item: item.path.parent != here)


def chromium() -> str:
    """Path of the browser; skips the test without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no chromium on PATH; on Debian: apt-get install chromium")


@contextmanager
def launched() -> Iterator[Any]:
    """A browser. While it is there, no test may start an event loop of its own (``asyncio.run``)."""
    path = chromium()
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=TIMEOUT)
        yield found
        found.close()


@contextmanager
def started(data: Path) -> Iterator[Service]:
    found, store = Service(), JobStore(data / "jobs.sqlite")
    store._writer.execute("PRAGMA synchronous = OFF")  # 600 durable writes would take a while
    for k in range(300):
        label = "project x" if k % 10 == 0 else f"old {k:04}"
        job, _ = store.submit(OLD.model_dump(mode="json"), label=label)
        store.request_cancel(job.id, "now")
    store.close()
    with served(create_app(settings_in(data, {"block_bytes": 1 << 20}, workers=2))) as found.url:
        yield found


@pytest.fixture(scope="module")
def browser() -> Any:
    return shared("browser", launched)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Service:
    """With 300 jobs in its list from the beginning, all cancelled, every 10th of "project x"."""
    found: Service = shared("service", lambda: started(tmp_path_factory.mktemp("page") / "data"))
    return found


@pytest.fixture
def relay(service: Service) -> Iterator[Relay]:
    found = Relay(service.port)
    yield found
    found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """``opened(url, width=, theme=)``: a fresh visit, watched for errors and foreign requests.

    A console error, an exception or a request to another origin fails the test in the end.
    ``page.quiet = False`` allows what every refused request writes to the console, None anything.
    """
    visits: list[Any] = []
    found: list[str] = []

    def visit(url: str, *, width: int = 1280, theme: str = "light", ready: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
        )
        visits.append(context)
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.quiet = True
        origin = "/".join(url.split("/")[:3])

        def request(sent: Any) -> None:
            if not sent.url.startswith((origin, "blob:" + origin, "data:")):
                found.append(f"request to {sent.url}")

        def console(message: Any) -> None:
            if message.type in ("error", "warning"):
                refused = message.text.startswith("Failed to load resource")
                if page.quiet or (page.quiet is False and not refused):
                    found.append(f"console {message.type}: {message.text}")

        page.on("request", request)
        page.on("console", console)
        page.on("pageerror", lambda error: found.append(f"exception: {error}"))
        page.goto(url)
        if ready:
            page.locator("main[data-page]").wait_for()
        return page

    yield visit
    for context in visits:
        context.close()
    assert not found


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, Any], str]:
    """``written("x.csv", rows)``: the path of a file with these numbers."""

    def write(name: str, rows: Any) -> str:
        path = tmp_path / name
        path.write_text("".join(",".join(repr(float(v)) for v in row) + "\n" for row in rows))
        return str(path)

    return write
