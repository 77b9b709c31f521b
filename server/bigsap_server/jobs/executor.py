"""Interface of executors, with their orders and reports.

An executor sends an ``Order`` to a worker and returns ``Report``s. It only makes communication
fast: the command and the outcome are in the job's folder (``control``), and the supervisor uses
these files whenever an executor loses contact with a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bigsap_server.jobs.control import Command

_ANY_NUMBER = 1 << 30


@dataclass(frozen=True)
class Order:
    """An attempt to run; the fields are those of ``worker.run_job``."""

    job_id: str
    attempt: int
    folder: Path
    spec: dict[str, Any] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)

    @property
    def spread(self) -> int:
        """Most workers that the attempt may use: 1 if it is not spread."""
        asked = self.spec.get("spread", False)
        return _ANY_NUMBER if asked is True else max(1, int(asked))


@dataclass(frozen=True)
class Report:
    """A report about an attempt.

    kind: ``begun``, ``progress`` and ``log`` come from the worker; ``over`` has the outcome;
    ``lost`` means that the executor has lost contact with the attempt.
    """

    job_id: str
    attempt: int
    kind: Literal["begun", "progress", "log", "over", "lost"]
    data: dict[str, Any]


Listener = Callable[[Report], None]


class Executor(Protocol):
    """Runs attempts. Methods are called by one thread; the listener is called by any."""

    own_process: bool
    """Whether an attempt has a process that may be killed for its sake."""

    def subscribe(self, listener: Listener) -> None:
        """Set the receiver of reports. Called once, before ``start``."""

    def start(self) -> None:
        """Connect to the workers. Raises OSError when they cannot be reached (yet)."""

    def poll(self) -> None:
        """Detect losses and reconnect. Called several times a second."""

    def ready(self) -> bool:
        """Return whether an attempt can be run."""

    def free(self) -> int:
        """Return how many more attempts could run now."""

    def workers(self) -> dict[str, int]:
        """Return the numbers of the cluster's workers by activity.

        ``busy`` with a job, ``lent`` to spread ones, ``idle``. Empty where there is no cluster.
        """

    def submit(self, order: Order) -> None:
        """Run an attempt. Raises OSError when no worker can take it."""

    def cancel(self, order: Order, command: Command) -> None:
        """Stop a running attempt as ``command`` says, within about a second."""

    def kill(self, order: Order) -> None:
        """Kill the process of an attempt that ignores its command, or drop one not yet begun."""

    def close(self) -> None:
        """Release the workers. Attempts under way are lost."""
