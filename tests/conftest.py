"""What all tests share: reproducible property tests, no bar and no cache of the user's."""

from __future__ import annotations

import hypothesis

from live_server import live_server, start_server
from stand_in import cupy

# One server for all modules that need one: imported by each, each would start its own.
__all__ = ["cupy", "live_server", "start_server"]

# The same examples in every run, and no deadline: the first example pays for compilation.
hypothesis.settings.register_profile(
    "bigsap", derandomize=True, deadline=None, database=None, print_blob=False
)
hypothesis.settings.load_profile("bigsap")
