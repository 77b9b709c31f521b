"""Which tests share a process where several run: those of a file, and those of a folder that shares one.

What a file's tests share (an image, a solved reference) is then built once. Marks (``xdist_group``)
do not do it: xdist 3.8 writes the group into names that pytest 9.2 no longer takes from there, and
deals out single tests without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

# A browser and the service; a cluster.
FOLDERS = ("tests/page/", "tests/cluster/")
_open: dict[str, Any] = {}
_stack = ExitStack()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own, with our parts."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for name in FOLDERS if nodeid.startswith(name)), nodeid.split("::", 1)[0])

    return ByFile(config, log)


def shared(name: str, make: Callable[[], AbstractContextManager[Any]]) -> Any:
    """What this context gives: entered once, left after the last test of the folder.

    Fixtures last for a file or for the session: until then a cluster and a browser would be kept
    during the tests of all other files.
    """
    if name not in _open:
        _open[name] = _stack.enter_context(make())
    return _open[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _open.clear()
        _stack.close()
