"""Which tests share a process where several run: those of a file, of the page, of a server.

What a file's tests share (an image, a solved reference) is then built once; the page has one
browser, and the tests of clients one server (``live_server``). Marks (``xdist_group``) do not do
it: xdist 3.8 writes the group into names that pytest 9.2 no longer takes from there, and deals out
single tests without a word.
"""

from __future__ import annotations

from typing import Any

import pytest

_OF_A_SERVER = {
    *(f"tests/client/test_{name}.py" for name in ("cli_service", "client", "client_costs")),
    *(f"tests/docs/test_{name}.py" for name in ("docs", "examples")),
}


def shared_by(nodeid: str) -> str:
    """What the tests of a process have in common."""
    file = nodeid.split("::", 1)[0]
    if file in _OF_A_SERVER:
        return "tests of a server"
    return "tests/page" if file.startswith("tests/page/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own, with our parts."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_by(nodeid)

    return ByFile(config, log)
