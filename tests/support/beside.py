"""Which tests share a process where several run: those of a file, and those of the page (one browser).

What a file's tests share (an image, a solved reference) is then built once. Marks (``xdist_group``)
do not do it: xdist 3.8 writes the group into names that pytest 9.2 no longer takes from there, and
deals out single tests without a word.
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own, with our parts."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/page" if nodeid.startswith("tests/page/") else nodeid.split("::", 1)[0]

    return ByFile(config, log)
