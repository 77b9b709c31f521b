"""What all tests share: reproducible property tests, no bar and no cache of the user's."""

from __future__ import annotations

import hypothesis

# The same examples in every run, and no deadline: the first example pays for compilation.
hypothesis.settings.register_profile(
    "bigsap", derandomize=True, deadline=None, database=None, print_blob=False
)
hypothesis.settings.load_profile("bigsap")
