"""A client of a real service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def client(live_server: Any) -> Iterator[Any]:
    from bigsap.client import Client

    with Client(live_server.url, patience=60) as found:
        yield found
