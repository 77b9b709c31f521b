"""The remote example and the reference provider, run as a user would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra dev")
pytest.importorskip("uvicorn", reason="extra dev")


def test_remote_rows():
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(EXAMPLES / "remote_rows.py"), "60", "80"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    numbers = {k: float(v) for k, v in re.findall(r"^(.+): ([0-9.e+-]+)$", done.stdout, re.M)}
    assert "status: optimal" in done.stdout
    # All rows fit in the cache: the certificate looks at those that the solve has kept.
    assert numbers["rows served by the provider"] == numbers["rows evaluated by the solve"]
    assert numbers["rows looked at by the certificate"] == 60
    assert numbers["rows evaluated by the solve"] == 60
    assert numbers["requests"] < 60
    assert numbers["gap"] < 1e-6


def test_provider_imports_nothing_of_bigsap():
    assert not re.search(r"^\s*(import|from) bigsap", (EXAMPLES / "provider.py").read_text(), re.M)
