"""Which tests may be run once more, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

pytest_plugins = ["pytester"]

TESTS = """
import pytest
runs = {"timed": 0, "plain": 0, "always": 0}

@pytest.mark.timed
def test_timed(tmp_path):
    runs["timed"] += 1
    assert not list(tmp_path.iterdir())
    (tmp_path / "x").touch()
    assert runs["timed"] == 2, "too slow"

@pytest.mark.timed
def test_always():
    runs["always"] += 1
    assert runs["always"] > 2, "always too slow"

def test_plain():
    runs["plain"] += 1
    assert runs["plain"] == 2, "wrong"
"""


def test_only_timed_tests_are_repeated_once_and_counted(pytester):
    pytester.makepyfile(timed=(Path(__file__).parent / "timed.py").read_text(), test_it=TESTS)
    pytester.makeini("[pytest]\nmarkers = timed: x\npythonpath = .\naddopts = -p timed")
    for more in ([], ["-n", "2"]):
        done = pytester.runpytest_subprocess("-p", "no:cacheprovider", *more)
        done.assert_outcomes(passed=1, failed=2)
        text = done.stdout.str()
        assert "2 timed test(s) run again" in text
        assert "AGAIN test_it.py::test_timed" in text
        assert "AGAIN test_it.py::test_always" in text
        assert "AGAIN test_it.py::test_plain" not in text
        assert "too slow" in text


def test_a_file_says_that_it_has_timed_tests(pytester):
    """``make test`` hands over only files that do."""
    hidden = "import pytest\nhurry = getattr(pytest.mark, 'timed')\n"
    pytester.makepyfile(
        timed=(Path(__file__).parent / "timed.py").read_text(),
        marks=hidden,
        test_it="import marks\n\n@marks.hurry\ndef test_it():\n    pass\n",
    )
    pytester.makeini("[pytest]\nmarkers = timed: x\npythonpath = .\naddopts = -p timed")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert done.ret != 0
    assert "it has timed tests, and nowhere mark.timed" in done.stderr.str() + done.stdout.str()
