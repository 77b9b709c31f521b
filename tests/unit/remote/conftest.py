"""A provider of rows on loopback, asked again without long pauses."""

from __future__ import annotations

import pytest

from bigsap.sources.http import wire
from connected import COST
from remote_provider import Provider


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(wire, "FIRST_PAUSE", 0.01)


@pytest.fixture
def provider():
    with Provider(COST) as made:
        yield made
