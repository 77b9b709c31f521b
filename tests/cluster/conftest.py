"""One cluster of two processes for all of these tests."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_costs import local
from process_groups import shared

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Any:
    # Otherwise a worker that is not back soon enough is given up, nanny and all.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "3650 days"})
    return shared("cluster", lambda: local(2))


@pytest.fixture(scope="module")
def client(cluster: Any) -> Any:
    return shared("client", lambda: distributed.Client(cluster, set_as_default=False))
