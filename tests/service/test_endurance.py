"""The long run of the service, for seconds: what an hour of it does is done here once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "endurance.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kind_of_load_passes() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--minutes", "0.5", "--every", "0.2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout[done.stdout.index("\n{\n") :])
    assert found["failures"] == 0
    assert found["counts"]["jobs tiny succeeded"] > 0
    assert found["counts"]["GET"] > 0
    assert found["server_mib"]["last"] > 0
