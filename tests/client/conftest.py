"""A client of a real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gate import HANG_S


@pytest.fixture
def client(live_server: Any) -> Iterator[Any]:
    from bigsap.client import Client

    with Client(live_server.url, patience=HANG_S) as found:
        yield found


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, in which it runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
