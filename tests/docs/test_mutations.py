"""The list of wrong lines is about the code as it is."""

from __future__ import annotations

import shlex

from mutations import MUTATIONS, ROOT, misplaced


def test_every_line_is_in_its_file_once():
    assert misplaced(MUTATIONS) == []
    assert len(set(MUTATIONS)) == len(MUTATIONS) >= 30


def test_every_mutation_has_tests():
    for mutation in MUTATIONS:
        assert mutation.old != mutation.new
        files = [word for word in shlex.split(mutation.tests) if word.endswith(".py")]
        assert files
        assert all((ROOT / file).is_file() for file in files)
