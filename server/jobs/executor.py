"""What runs attempts: the contract, and what goes to and fro.

An executor carries an ``Order`` to a worker and brings ``Report``s back. It is a fast way
for both and no more: what was ordered and how it ended stands in the job's folder
(``control``), and the supervisor goes by that whenever an executor loses sight of a worker.
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
        """Workers that it may use at most: 1 for one that is not spread."""
        asked = self.spec.get("spread", False)
        return _ANY_NUMBER if asked is True else max(1, int(asked))


@dataclass(frozen=True)
class Report:
    """News of an attempt.

    kind: ``begun``, ``progress`` and ``log`` as the worker tells; ``over`` with the outcome;
    ``lost`` when the executor can no longer tell what becomes of the attempt.
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
        """Where reports go. Once, before ``start``."""

    def start(self) -> None:
        """Get ready. Raises OSError when the workers cannot be reached (yet)."""

    def poll(self) -> None:
        """Regular care, several times a second: notice what was lost, connect again."""

    def ready(self) -> bool:
        """Whether there is somebody to run an attempt."""

    def free(self) -> int:
        """How many more attempts could run now."""

    def workers(self) -> dict[str, int]:
        """Workers of the cluster by what they do: ``busy`` with a job, ``lent`` to spread ones,
        ``idle``. Empty where there is no cluster."""

    def submit(self, order: Order) -> None:
        """Run it. Raises OSError when nobody can take it."""

    def cancel(self, order: Order, command: Command) -> None:
        """Have a running attempt stop as ``command`` says, within a second or so."""

    def kill(self, order: Order) -> None:
        """End the process of an attempt that does not obey, or forget one not yet begun."""

    def close(self) -> None:
        """Let the workers go. Attempts under way are lost."""
