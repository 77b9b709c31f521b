"""A job while it runs: figures, curves, cancel, resume, delete, and a connection that breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from bigsap_server.jobs import ranking
from page_service import Relay, Service
from page_steps import wait_text, waiting_job

import bigsap
from bigsap.progress import Monitor
from gate import Gate, until


@pytest.fixture
def running(service: Service, gate: Gate) -> Iterator[str]:
    job = service.submit(waiting_job(gate, "slow"))
    service.wait_for(job, "running")
    yield job
    service.cancel(job)


def sequence(page: Any) -> list[int]:
    """Numbers of the events that the page has taken, in the order of their arrival."""
    return [int(text) for text in (page.locator("#live").get_attribute("data-seen") or "").split()]


def test_figures_curves_and_log(opened: Callable[..., Any], service: Service, running: str) -> None:
    page = opened(f"{service.url}/#/jobs/{running}")
    wait_text(page, "#bar-text", r"% of the rows assigned in phase \d")
    facts = wait_text(page, "#job-facts", r"Rows evaluated\s*[1-9]")
    for name in ("Assigned", "Epsilon", "Rows scanned", "Cache hit rate"):
        assert name in facts
    curve = page.get_by_role("img", name=re.compile("^Rows evaluated: [1-9]"))
    curve.locator("canvas").wait_for()
    page.get_by_role("img", name=re.compile("^Epsilon: ")).locator("canvas").wait_for()
    wait_text(page, "#job-log", "The job is running")
    wait_text(page, "#job-log", "Phase 1, epsilon")
    assert page.get_by_role("progressbar", name=re.compile("rows|prices")).is_visible()
    first = sequence(page)[-1]
    until(lambda: sequence(page)[-1] >= first + 3)


def test_a_ranking_and_its_stop(
    opened: Callable[..., Any], service: Service, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ranking.best_after

    def best_after(*args: Any, callback: Any, cancel: Any, **given: Any) -> bigsap.Assignments:
        def see(progress: bigsap.Progress) -> None:
            callback(progress)
            if progress.ranked >= 30:
                until(lambda: gate.is_open or cancel.is_set())

        return real(*args, callback=see, cancel=cancel, **given)

    monkeypatch.setattr(ranking, "best_after", best_after)
    monkeypatch.setattr("bigsap.strategies.k_best_search._PAIRS", 0)
    monkeypatch.setattr("bigsap.k_best.Monitor", partial(Monitor, interval=0))
    values = np.random.default_rng(8).random((20, 20)).tolist()
    job = service.submit({"cost": {"type": "array", "values": values}, "k_best": 300})
    page = opened(f"{service.url}/#/jobs")
    line = page.get_by_role("row").filter(has=page.locator(f"a[href='#/jobs/{job}']"))
    line.get_by_text(re.compile(r"^[\d.]+\s% ranked")).wait_for()
    line.get_by_role("link").click()
    text = wait_text(page, "#bar-text", r"([3-9]\d|\d{3}) of 300 assignments ranked")
    assert int(text.split()[0]) < 300
    assert 0.1 <= page.locator("#job-bar").evaluate("bar => bar.value") < 1
    page.get_by_role("button", name="Stop and keep what is known").click()
    wait_text(page, "#job-state", "cancelled")
    heading = wait_text(page, "#ranking summary", r"Ranked: \d+ assignments, then stopped")
    assert 30 <= int(heading.split()[1]) < 300
    gate.open()
    page.get_by_role("button", name="Resume").click()
    wait_text(page, "#ranking summary", "Ranked: 300 assignments$")
    assert page.get_by_role("button", name="Resume").is_hidden()


def test_stop_and_keep_then_resume_then_stop_now_then_delete(
    opened: Callable[..., Any], service: Service, running: str
) -> None:
    page = opened(f"{service.url}/#/jobs/{running}")
    wait_text(page, "#job-facts", r"Rows evaluated\s*[1-9]")
    assert page.get_by_role("button", name="Delete").is_hidden()
    page.get_by_role("button", name="Stop and keep what is known").click()
    wait_text(page, "#job-state", "cancelled")
    wait_text(page, "#verdict", "The job was stopped")
    page.get_by_role("button", name="Resume").click()
    wait_text(page, "#job-state", r"running.*attempt 2")
    page.get_by_role("button", name="Stop now").click()
    wait_text(page, "#job-state", "cancelled")

    def logged() -> list[str]:
        found = re.findall(r"The job is (\w+)", page.locator("#job-log").inner_text())
        return [state for state in found if state in ("running", "cancelled")]

    # The log follows the stream of events, which may come after the state that was asked for.
    until(lambda: len(logged()) == 4)
    assert logged() == ["running", "cancelled", "running", "cancelled"]

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete this job?")
    dialog.get_by_role("button", name="Keep it").click()
    assert service.get(f"/v1/jobs/{running}").status_code == 200
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete it").click()
    page.get_by_role("heading", level=1, name="Jobs").wait_for()
    assert service.get(f"/v1/jobs/{running}").status_code == 404


def test_a_lost_connection_leaves_no_gap(
    opened: Callable[..., Any], service: Service, relay: Relay, running: str
) -> None:
    asked: list[str | None] = []  # Last-Event-ID of each request for the stream
    page = opened(relay.url)
    page.quiet = False

    def note(request: Any) -> None:
        if request.url.endswith("/events"):
            asked.append(request.headers.get("last-event-id"))

    page.on("request", note)
    page.evaluate(
        "() => { window.listening = 0; for (const [name, by] of [['add', 1], ['remove', -1]]) {"
        "const native = window[`${name}EventListener`];"
        "window[`${name}EventListener`] = function (kind, ...more) {"
        "if (kind === 'online') window.listening += by;"
        "return native.call(this, kind, ...more); }; } }"
    )
    page.goto(f"{relay.url}/#/jobs/{running}")
    wait_text(page, "#job-facts", r"Rows evaluated\s*[1-9]")
    last = until(lambda: sequence(page))[-1]
    relay.cut()
    wait_text(page, "#job-connection", "The connection is lost; trying again in")
    assert page.locator("#live").get_attribute("data-connection") == "waiting"
    assert page.evaluate("window.listening") <= 1
    until(lambda: events(service, running)[-1] >= last + 3)  # missed meanwhile
    relay.up()
    wait_text(page, "#job-connection", "^Live")
    until(lambda: sequence(page)[-1] >= events(service, running)[-1] - 1)
    seen = sequence(page)
    assert seen == events(service, running)[: len(seen)]
    assert page.evaluate("window.listening") == 0  # no wait leaves anything behind
    assert asked[0] is None
    assert all(asked[1:])
    assert len(set(asked)) >= 2  # from where it broke
    service.cancel(running)
    wait_text(page, "#job-state", "cancelled")
    until(lambda: sequence(page) == events(service, running))


def events(service: Service, job: str) -> list[int]:
    found: list[int] = []
    while True:
        page = service.get(
            f"/v1/jobs/{job}/events",
            headers={"Accept": "application/json"},
            params={"after": found[-1] if found else 0},
        ).json()["events"]
        if not page:
            return found
        found += [event["seq"] for event in page]


def test_a_failed_job_says_why(opened: Callable[..., Any], service: Service) -> None:
    cost = {"type": "expression", "code": "sqrt(40 - i) + j"}
    job = service.submit({"shape": [50, 50], "cost": cost})
    service.wait_for(job, "failed")
    page = opened(f"{service.url}/#/jobs/{job}")
    said = wait_text(page, "#job-reason", "A cost is not a number")
    assert "cost[41, 0] is nan" in said
    assert page.get_by_role("button", name="Resume").is_visible()
