"""One cluster of two processes for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster_costs import local

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    # Otherwise a worker that is not back soon enough is given up, nanny and all.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "3650 days"})
    with local(2) as made:
        yield made


@pytest.fixture(scope="package")
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster, set_as_default=False) as made:
        yield made
