"""Sources that wait for the test: no test needs a solve to be slow.

A ``Gate`` is a folder, so that a test and the processes that it watches share it. ``Gated`` rows
go through one: so many are read as usual, the others wait until the test opens it. Who may leave a
read (a cancelled solve, one past its limit) leaves a waiting one. Jobs of the service name such
costs by the plugin ``gated`` (``tests/support/plugins``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap

#: Ends what hangs, nothing else: no test passes or fails by it on a machine that does its work.
HANG_S = 200.0
_LOOK_S = 0.005
#: Where the service's processes find the plugin.
SUPPORT = Path(__file__).parent
PLUGINS = SUPPORT / "plugins"


class Gate:
    """A gate between the readers of a source and the test; shut at first.

    folder: of its own. reached: called in the reader's process whenever a reader has to wait.
    """

    def __init__(self, folder: str | os.PathLike[str], reached: Callable[[], Any] | None = None) -> None:
        self.folder, self.reached = Path(folder), reached
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def is_open(self) -> bool:
        return (self.folder / "open").exists()

    def open(self) -> None:
        """Let all readers go on, those to come included."""
        (self.folder / "open").touch()

    def shut(self) -> None:
        """Readers wait again, and those that did so before are forgotten."""
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    @property
    def waiting(self) -> int:
        """How many times a reader has come to the shut gate."""
        return sum(path.name != "open" for path in self.folder.iterdir())

    def wait_for_readers(self, count: int = 1) -> None:
        """Until so many have come."""
        until(lambda: self.waiting >= count)

    def open_for(self, count: int) -> None:
        """Open as soon as so many have come: who comes once more has left the read before.

        If they do not come, the thread ends when the gate is opened, at the latest by its fixture: its
        failure would be that of another test.
        """

        def wait() -> None:
            until(lambda: self.is_open or self.waiting >= count)
            self.open()

        threading.Thread(target=wait, daemon=True).start()

    def enter(self, check: Callable[[], Any] = lambda: None) -> None:
        """What a reader calls: wait until the gate is open; what ``check`` raises leaves it."""
        if self.is_open:
            return
        (self.folder / f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}").touch()
        if self.reached is not None:
            self.reached()
        end = time.monotonic() + HANG_S
        while not self.is_open:
            check()
            assert time.monotonic() < end, "nobody has opened the gate"
            time.sleep(_LOOK_S)


class Gated:
    """A source whose rows wait at ``gate`` once ``after`` of them have been read."""

    def __init__(self, source: Any, gate: Gate, after: int = 0) -> None:
        self._inner = bigsap.as_source(source)
        self.shape, self.dtype = self._inner.shape, self._inner.dtype
        self.gate, self.left = gate, after
        self._check = threading.local()

    def read(self, rows: np.ndarray, columns: slice, out: np.ndarray) -> None:
        for k in range(len(rows)):
            if self.left > 0:
                self.left -= 1
            else:
                self.gate.enter(getattr(self._check, "call", None) or (lambda: None))
            self._inner.read(rows[k : k + 1], columns, out[k : k + 1])

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        self._check.call = check

    def fingerprint(self) -> str:
        return str(self._inner.fingerprint())


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate that is opened in the end."""
    found = Gate(tmp_path / "gate")
    yield found
    found.open()


def apart(n: int, seed: int = 5) -> bigsap.CostSource:
    """Two point sets apart from each other: an assignment that needs many searches."""
    rng = np.random.default_rng(seed)
    return bigsap.points(rng.random((n, 2)), rng.random((n, 2)) + 1, "euclidean")


def gated_job(gate: Gate, n: int = 200, after: int = 0, **options: Any) -> dict[str, Any]:
    """A job whose rows wait at the gate; with others' options, of searches by whole rows."""
    params = {"gate": str(gate.folder), "n": n, "after": after}
    given = {"method": "ssp", "threads": 1, "cache": "32KiB", "checkpoint_s": 0.2} | options
    return {"cost": {"type": "plugin", "name": "gated", "params": params}, "options": given}


def until(condition: Callable[[], Any], every: float = 0.02) -> Any:
    """What ``condition`` comes to give, as soon as it is true."""
    end = time.monotonic() + HANG_S
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(every)
    return found


class Counting:
    """An event that is set after so many questions."""

    def __init__(self, most: int) -> None:
        self.most, self.asked = most, 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > self.most
