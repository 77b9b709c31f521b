"""Tests marked ``timed``: they depend on the machine's speed, and may be run once more.

Only such a test is ever repeated, and only once: a machine that is busy for a moment may have
failed it. The repetition is printed, with what failed, and counted at the end of the run. Whatever
else fails has failed.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

#: How files say so: ``make test`` looks for it, and hands over only these.
_SAID = "mark.timed"
#: Key of a report's ``user_properties``: the repeated test's first failure.
KEY = "run again"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a timed test whose file does not say so itself: it would be left out."""
    for path in {item.path for item in items if item.get_closest_marker("timed")}:
        files = [file for file in (path, path.parent / "conftest.py") if file.exists()]
        said = any(_SAID in file.read_text() for file in files)
        if not said:
            raise pytest.UsageError(f"{path}: it has timed tests, and nowhere {_SAID}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("timed") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = [report for report in reports if report.failed]
    if failed:
        item._initrequest()  # type: ignore[attr-defined]  # fixtures of the first run are gone
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        reports[0].user_properties.append((KEY, failed[0].longreprtext))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that were repeated; their reports come from xdist's workers, too."""
    again = [
        (report.nodeid, text)
        for reports in terminalreporter.stats.values()
        for report in reports
        for key, text in getattr(report, "user_properties", ())
        if key == KEY and report.when == "setup"
    ]
    if again:
        terminalreporter.section(f"{len(again)} timed test(s) run again")
        for name, text in again:
            terminalreporter.write_line(f"AGAIN {name}")
            terminalreporter.write_line(text)
