"""Which tests share a process where several run: those of a file, and all of the page.

What a file's tests share (an image, a server, a solved reference) is then built once, and the
page has one browser. Marks (``xdist_group``) do not do it: xdist 3.8 writes the group into names
that pytest 9.2 no longer takes from there, and deals out single tests without a word.
"""

from __future__ import annotations

from typing import Any

import pytest


def shared_by(nodeid: str) -> str:
    """What the tests of a process have in common."""
    file = nodeid.split("::", 1)[0]
    return "tests/page" if file.startswith("tests/page/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own, with our parts."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_by(nodeid)

    return ByFile(config, log)
