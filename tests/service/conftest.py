"""Fixtures of the server's tests: a process of its own, or the application in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bigsap_server.api.app import create_app

from apps import TestClient, served, settings_in

BASE = "http://127.0.0.1:8765"


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """The application in this process; ``make_app(limits={...}, stores=...)``."""
    with ExitStack() as stack:

        def make(limits: dict[str, Any] | None = None, **given: Any) -> TestClient:
            app = create_app(settings_in(tmp_path / "data", limits, **given))
            client = TestClient(app, base_url=BASE, raise_server_exceptions=False)
            return stack.enter_context(client)

        yield make


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One application for a module whose tests leave it as it was; at no rate too many requests."""
    limits = {"requests_per_s": 10_000, "burst": 10_000}
    app = create_app(settings_in(tmp_path_factory.mktemp("shared") / "data", limits))
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def api(make_app: Callable[..., TestClient]) -> TestClient:
    """The application with default settings."""
    return make_app()


@pytest.fixture
def serve_app(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Serve the application on a loopback socket: ``serve_app(...)`` gives the address."""
    with ExitStack() as stack:

        def serve(limits: dict[str, Any] | None = None, **given: Any) -> str:
            app = create_app(settings_in(tmp_path / "data", limits, **given))
            return stack.enter_context(served(app))

        yield serve
