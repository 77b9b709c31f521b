"""How large, how often and how long: everything an experiment may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.instances import MORE

PAPER_CLASSES = ("sanity", "random", "geometric", "disjoint", "rank1", "rank2", "rank4", "rank8")
ALL_CLASSES = (*PAPER_CLASSES, "int0.1n", "int1n", "int10n", "int1000n", *MORE)
#: A cache holds one row in so many; 0: a single row.
SHARES = (1, 4, 16, 0)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Sizes at which solvers run against each other: so many seeds of these classes.

    peers: whether the others take part, or BigSAP's methods alone.
    """

    sizes: tuple[int, ...]
    seeds: int = 1
    classes: tuple[str, ...] = ALL_CLASSES
    peers: bool = True


# What an hour allows, with all else: the sizes that the bars are about, and one that no other
# solver of the table but Algorithm 1015 reaches; Table 2 of our methods.
ROUNDS = (
    Round(sizes=(4000,), seeds=3),
    Round(sizes=(2000, 8000)),
    Round(sizes=(1000, 1414, 2828, 5656), peers=False, classes=PAPER_CLASSES),
    Round(sizes=(16000,), classes=("random", "geometric", "disjoint", "rank2", "rank8", "int1n")),
)


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Sizes are rows (= columns); limits and patience see ``limit_of``.

    ``out`` is where logs, pictures and temporary matrices go. ``methods`` of BigSAP on
    ``devices`` and ``peers`` are the solvers that run against each other.
    """

    out: Path
    scale: str = "full"
    # At these sizes "auto" is "compressed" (the report says so): no third column.
    methods: tuple[str, ...] = ("auto", "ssp")
    devices: tuple[str, ...] = ("cpu",)
    peers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ALL_CLASSES
    limit: float = 60.0
    patience: float = 6.0
    floor: float = 4.0
    table1_sizes: tuple[int, ...] = (1000, 1414, 2000, 2828, 4000)
    table1_seeds: int = 5
    # Without epsilon phases rank 1 scans n^2 / 2 rows of n costs.
    plain_size: int = 2000
    plain_seeds: int = 2
    paths_size: int = 1000
    decay_sizes: tuple[int, ...] = (1000, 1414, 2000)
    trees_sizes: tuple[int, ...] = (500, 1000, 2000, 4000)
    rounds: tuple[Round, ...] = ROUNDS
    # Threads of the solvers that run against each other, of those that use more than one.
    peers_threads: tuple[int, ...] = (1, 2)
    threads_size: int = 8000
    threads_seeds: int = 5
    thread_counts: tuple[int, ...] = (1, 2)
    shares: tuple[int, ...] = SHARES
    cached_sizes: tuple[int, ...] = (1000, 1414, 2000, 2828)
    cached_seeds: int = 1
    bandwidth_sizes: tuple[int, ...] = (16000, 32000)
    bandwidth_seeds: int = 2
    memory_size: int = 8000
    memory_seeds: int = 3
    # Every scan of an absent row decodes a chunk, some ms: classes and sizes to match.
    outofcore_instances: tuple[tuple[str, int], ...] = (("rank1", 2000), ("geometric", 500))
    startup_seeds: int = 5
    small_sizes: tuple[int, ...] = (3, 10, 50, 100, 200, 500, 1000)
    many_sizes: tuple[int, ...] = (10, 50)
    many_count: int = 1000
    gated_sizes: tuple[int, ...] = (50, 300, 1000, 4000)
    gated_points: tuple[int, ...] = (20_000, 200_000, 1_000_000)
    curve_sizes: tuple[int, ...] = (16000, 64000, 256000, 1024000)
    # Those of the curve at which POT's solver without a matrix runs beside, if it is installed.
    lazy_sizes: tuple[int, ...] = (16000,)
    demo_pixels: int = 20_000
    # Heuristics whose gap is proved.
    gaps_sizes: tuple[int, ...] = (10_000, 100_000)
    # Most seconds of a solver for a problem, and how long others get in multiples of the best.
    contest_limit: float = 30.0
    contest_patience: float = 10.0
    contest_floor: float = 8.0
    own_limit: float = 120.0
    sparse_sizes: tuple[int, ...] = (100_000,)
    sparse_large: tuple[int, ...] = (1_000_000,)
    sparse_infeasible: tuple[int, ...] = (10_000, 100_000)
    # Rows: of problems that all solve, of one with more columns, of BigSAP's alone.
    capacity_sizes: tuple[int, int, int] = (20_000, 100_000, 1_000_000)
    high_sizes: tuple[int, ...] = (5_000, 10_000)
    high_dimensions: tuple[int, ...] = (50, 256)
    high_large: tuple[tuple[str, int], ...] = (
        ("mixture, 50-D, 1 GiB", 30_000),
        ("cosine, 768-D, float32", 20_000),
        ("great circles", 30_000),
    )
    # Of the matrices of a full run.
    batches_share: float = 1.0
    # Rows, and how many assignments.
    best_matrices: tuple[tuple[int, int], ...] = ((20, 1000), (100, 1000), (500, 1000), (2000, 100))
    best_points: tuple[tuple[int, int], ...] = ((10_000, 10),)
    bottleneck_matrices: tuple[int, ...] = (1000, 4000)
    bottleneck_points: tuple[int, ...] = (20_000, 100_000)

    def limit_of(self, best: float | None) -> float:
        """Seconds a solver gets when the best of this instance took ``best``.

        A solver that loses by ``patience`` times is beaten; waiting for it to finish
        would make up most of the run. ``floor`` keeps the verdict clear of noise.
        """
        if best is None:
            return self.limit
        return min(self.limit, max(self.floor, self.patience * best))

    def contest_limit_of(self, best: float | None, *, own: bool) -> float:
        """The same for the problems of the other experiments; ``own``: BigSAP gets all the time."""
        if own or best is None:
            return self.own_limit if own else self.contest_limit
        return min(self.contest_limit, max(self.contest_floor, self.contest_patience * best))

    def paper_classes(self) -> list[str]:
        """Those of the chosen classes that the paper has."""
        return [name for name in self.classes if name in PAPER_CLASSES]


def share_text(share: int) -> str:
    """A cache as people call it: ``1/4 of the rows``, ``all rows``, ``one row``."""
    return {0: "one row", 1: "all rows"}.get(share, f"1/{share} of the rows")


# Small enough to check the harness in some two minutes.
QUICK: dict[str, Any] = {
    "scale": "quick",
    "classes": ("sanity", "random", "disjoint", "rank2", "int1n"),
    "limit": 5.0,
    "floor": 1.0,
    "patience": 3.0,
    "table1_sizes": (100, 141, 200),
    "table1_seeds": 2,
    "plain_size": 200,
    "paths_size": 60,
    "decay_sizes": (60, 120),
    "trees_sizes": (60, 120),
    "rounds": (Round(sizes=(100, 141)),),
    "peers_threads": (1,),
    "threads_size": 300,
    "threads_seeds": 2,
    "cached_sizes": (100, 141, 200),
    "bandwidth_sizes": (300,),
    "bandwidth_seeds": 1,
    "memory_size": 300,
    "memory_seeds": 1,
    "outofcore_instances": (("rank1", 200), ("geometric", 100)),
    "startup_seeds": 1,
    "small_sizes": (3, 30),
    "many_sizes": (10,),
    "many_count": 10,
    "gated_sizes": (30, 60),
    "gated_points": (300,),
    "gaps_sizes": (300,),
    "contest_limit": 5.0,
    "contest_floor": 5.0,
    "sparse_sizes": (300,),
    "sparse_large": (400,),
    "sparse_infeasible": (300,),
    "capacity_sizes": (1000, 2000, 3000),
    "high_sizes": (400,),
    "high_large": (("mixture, 50-D, 1 GiB", 400), ("great circles", 400)),
    "batches_share": 0.01,
    "best_matrices": ((20, 10),),
    "best_points": ((200, 10),),
    "bottleneck_matrices": (100,),
    "bottleneck_points": (200,),
    "curve_sizes": (200, 400),
    "lazy_sizes": (200, 400),
    "demo_pixels": 200,
}
