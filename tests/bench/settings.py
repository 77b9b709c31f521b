"""How large, how often and how long: everything an experiment may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAPER_CLASSES = (
    "sanity", "random", "geometric", "disjoint", "rank1", "rank2", "rank4", "rank8",
)  # fmt: skip
INTEGER_CLASSES = ("int0.1n", "int1n", "int10n", "int1000n")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes are rows (= columns); limits and patience see ``limit_of``.

    ``out`` is where logs, pictures and temporary matrices go. ``methods`` of BigSAP and
    ``peers`` are the solvers that run against each other.
    """

    out: Path
    scale: str = "full"
    methods: tuple[str, ...] = ("ssp",)
    peers: tuple[str, ...] = ()
    classes: tuple[str, ...] = PAPER_CLASSES + INTEGER_CLASSES
    limit: float = 60.0
    patience: float = 6.0
    floor: float = 8.0
    table1_sizes: tuple[int, ...] = (1000, 4000)
    table1_seeds: int = 5
    peers_size: int = 4000
    peers_seeds: int = 3
    threads_size: int = 8000
    threads_seeds: int = 5
    thread_counts: tuple[int, ...] = (1, 2)
    bandwidth_size: int = 16000
    bandwidth_seeds: int = 2
    memory_size: int = 8000
    memory_seeds: int = 3
    # Every scan of an absent row decodes a chunk, some ms: classes and sizes to match.
    outofcore_instances: tuple[tuple[str, int], ...] = (("rank1", 4000), ("geometric", 500))
    startup_seeds: int = 5
    demo_pixels: int = 20_000

    def limit_of(self, best: float | None) -> float:
        """Seconds a solver gets when the best of this instance took ``best``.

        A solver that loses by ``patience`` times is beaten; waiting for it to finish
        would make up most of the run. ``floor`` keeps the verdict clear of noise.
        """
        if best is None:
            return self.limit
        return min(self.limit, max(self.floor, self.patience * best))

    def paper_classes(self) -> list[str]:
        return [name for name in self.classes if name in PAPER_CLASSES]


# Small enough to check the harness on a busy machine in a minute or two.
QUICK = {
    "scale": "quick",
    "limit": 20.0,
    "floor": 2.0,
    "table1_sizes": (300, 600),
    "table1_seeds": 2,
    "peers_size": 600,
    "peers_seeds": 2,
    "threads_size": 600,
    "threads_seeds": 2,
    "bandwidth_size": 600,
    "bandwidth_seeds": 1,
    "memory_size": 600,
    "memory_seeds": 1,
    "outofcore_instances": (("rank1", 300), ("geometric", 150)),
    "startup_seeds": 2,
    "demo_pixels": 400,
}
