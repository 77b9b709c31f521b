"""What all tests share: reproducible property tests, no bar and no cache of the user's."""

from __future__ import annotations

import gc
import os
import signal

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from bigsap import policy
from built_site import site
from clock import clock
from examples_of import RANDOM
from gate import gate

pytest_plugins = ["depth", "live_server", "process_groups"]

# Imports and thousands of tests make millions of objects that stay: looking through them for garbage, again
# and again, took a third of the processor's time.
gc.disable()

# One site for all modules that need one: imported by each, each would build its own.
__all__ = ["clock", "gate", "site"]

# The same examples in every run, and no deadline: the first example pays for compilation.
hypothesis.settings.register_profile(
    "bigsap", derandomize=True, deadline=None, database=None, print_blob=False, max_examples=34
)
# Other examples in every run, for `make test-all`; a failure prints how to get it again.
hypothesis.settings.register_profile("random", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("BIGSAP_TEST_PROFILE", "bigsap"))
if not RANDOM and hasattr(providers, "_get_local_constants"):
    # It also draws numbers that stand in our modules: in those that the process has imported so far,
    # which differ with the tests that it ran before.
    providers._get_local_constants = providers.Constants

# A shell starts what it runs in the background with SIGINT ignored, and so would be the children
# of tests. A handler is reset to the default in a child; a signal that is ignored stays ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def as_if_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve few points as many are: tests of points are about the methods for many.

    Other processes solve them at once, and so do tests that ask for ``few_points``.
    """
    if "few_points" not in request.fixturenames:
        monkeypatch.setattr(policy, "MOST_SMALL_COMPUTED", 0)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time enough to put a stopped solve's answer together, however busy the machine is."""
    monkeypatch.setattr("bigsap.progress._LEAST_GRACE", 60.0)


@pytest.fixture
def few_points() -> None:
    """Solve few points at once, as users see it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the searches take whose every minute may find something."""
    group = parser.getgroup("bigsap")
    group.addoption("--api-minutes", type=float, default=0.25, help="of random requests")
    group.addoption("--kills", type=int, default=4, help="of workers, servers and solvers")
