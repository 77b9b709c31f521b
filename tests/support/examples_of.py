"""How many examples property tests take: ``@examples(300)`` instead of ``@settings``."""

from __future__ import annotations

import os

import hypothesis

#: ``make test`` takes the same examples in every run, so that many would repeat what few have
#: shown; ``make test-all`` takes others in every run, and all of them.
RANDOM = os.environ.get("BIGSAP_TEST_PROFILE") == "random"
SHARE = 5


def examples(count: int) -> hypothesis.settings:
    """``count`` random examples in ``make test-all``, a fifth of them in ``make test``."""
    return hypothesis.settings(max_examples=count if RANDOM else -(-count // SHARE))
