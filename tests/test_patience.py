"""What hangs is given up after its seconds; what waits for a processor is not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live_server import Patience


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def test_what_hangs_is_given_up(child: int) -> None:
    patience = Patience(child, 0.5)
    until = time.monotonic() + 30
    while not patience.over:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_waits_for_a_processor_is_waited_for(child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(child, 0.5)
    began, tell = time.monotonic(), Path.read_text

    def waited(file: Path) -> str:
        if file.name != "schedstat":
            return tell(file)
        return f"0 {int(1e9 * (time.monotonic() - began)) + 10**9} 1"

    monkeypatch.setattr(Path, "read_text", waited)
    time.sleep(1.0)
    assert not patience.over
