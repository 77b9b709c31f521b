"""``@pytest.mark.some(n)``: of a test's cases ``make test`` runs n, and ``make test-deep`` all.

The cases are those that show most: each in turn the one with most values of parameters that none
before had, and with those that fewest had. The rest is marked ``slow``.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest


def chosen(cases: list[dict[str, int]], count: int) -> set[int]:
    """Positions of ``count`` cases that together have as many values as possible."""
    left, seen, found = list(range(len(cases))), Counter[tuple[str, int]](), set[int]()

    def shows(k: int) -> tuple[int, int, int]:
        had = [seen[value] for value in cases[k].items()]
        return had.count(0), -sum(had), -k

    while left and len(found) < count:
        best = max(left, key=shows)
        left.remove(best)
        found.add(best)
        seen.update(cases[best].items())
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[tuple[object, ...], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("some"):
            tests[item.path, item.parent, item.originalname].append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("some")
        assert marker is not None
        cases = [case for case in cases if case.get_closest_marker("slow") is None]
        # By identity: pytest numbers the cases in its indices, not the values.
        given = [
            {name: id(value) for name, value in case.callspec.params.items()}
            if hasattr(case, "callspec")
            else {}
            for case in cases
        ]
        taken = chosen(given, marker.args[0])
        for k, case in enumerate(cases):
            if k not in taken:
                case.add_marker(pytest.mark.slow)
