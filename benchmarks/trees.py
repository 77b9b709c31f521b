"""The Hungarian method as four papers measured it: first stars, steps by range, many devices.

Counts are of the CPU's twin, which are a device's. Published ones stand beside them, never as
bars: Date and Nagi 2016; Kawtikwar, Cravens and Yang, table III (n is not said, 4096 by a figure).
Scaling over devices is simulated: times of one device and of messages between two were measured,
sums are computed, and the table says so.
"""

from __future__ import annotations

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import integers
from benchmarks.records import Log
from benchmarks.report import DASH, table

NAME = "trees"
TITLE = "The Hungarian method: first stars, passes, paths and steps by range"
#: Ranges of costs, in n.
FACTORS = (0.1, 1.0, 10.0, 100.0)
# Dual updates of the classical method are many where ties are few.
_CLASSICAL = ((0.1, 2000), (1.0, 1000), (10.0, 500))
_VARIANTS = ("tree", "classical")

#: Range in n -> stages, dual updates as published (table III).
PUBLISHED_STEPS = {0.1: (11, 0), 1.0: (79, 10), 10.0: (199, 82), 100.0: (618, 844)}
#: n, range in n -> percent of rows matched by the first stars, as published.
PUBLISHED_STARS = {(1000, 1.0): 86.6, (20_000, 10.0): 81.3}
#: Seconds on 1, 2, 4, 8, 16 devices, R = 10 n, as published (K20X): weak scaling from n = 10,000 to
#: 40,000 by sqrt(p), strong at 20,000; the classical method, and trees.
DEVICES = (1, 2, 4, 8, 16)
PUBLISHED_WEAK = {"classical": (10.4, 12.5, 15.0, 18.6, 23.6), "trees": (16.3, 20.3, 26.5, 37.0, 58.3)}
PUBLISHED_STRONG = {"classical": (28.5, 19.5, 15.1, 13.0, 12.0), "trees": (38.3, 29.2, 26.2, 27.5, 30.2)}

# Measured on one H100, see tests/bench/GPU.md: int32 costs, U{0..10n}. Seconds of the readings of
# 32,768 rows and columns, growing as n**2; of the trees, growing as a power between two sizes; of
# a message and a byte between two H100 of one host. Each device holds its rows already.
READINGS, READINGS_N = 6.0e-3, 32_768
TREES, TREES_N, POWER = 45.8e-3, 16_384, 0.94
MESSAGE, BYTE = 17e-6, 1 / 310e9
_LIST_BYTES = 8 * 32 + 12


def run(settings: BenchSettings, log: Log) -> None:
    """One matrix of each size and range."""
    for n in settings.trees_sizes:
        for factor in FACTORS:
            cost = integers(n, 1, factor)
            for variant in _VARIANTS:
                named = f"int{factor:g}n"
                most = dict(_CLASSICAL).get(factor, 0)
                if (variant == "classical" and n > most) or log.has(NAME, named, n, 1, variant, 1):
                    continue
                result = bigsap.solve(cost, method="hungarian", variant=variant, threads=1)
                log.add(NAME, named, n, 1, variant, 1, factor=factor, **result.stats["trees"])


def simulated_seconds(n: int, devices: int) -> float:
    """Of rows shared out among devices: each reads its own, all tell their columns' least
    prices and hear of everybody's, lists go to the first, which grows the trees alone."""
    others = devices - 1
    readings = READINGS * (n / READINGS_N) ** 2 / devices
    prices = 2 * others * (MESSAGE + 4 * n * BYTE)
    lists = others * (5 * MESSAGE + n / devices * _LIST_BYTES * BYTE)
    return float(readings + prices + lists + TREES * (n / TREES_N) ** POWER)


def render(settings: BenchSettings, log: Log) -> str:
    """Counts, then the simulation."""
    return "\n\n".join((_counts(log), _scaling("Weak"), _scaling("Strong")))


def brief(settings: BenchSettings, log: Log) -> str:
    """The same of the largest matrices alone."""
    largest = max((record["n"] for record in log.of(experiment=NAME)), default=0)
    return "\n\n".join((_counts(log, largest), _scaling("Weak"), _scaling("Strong")))


def _counts(log: Log, least: int = 0) -> str:
    """Of matrices of at least so many rows."""
    rows = []
    for record in log.of(experiment=NAME):
        n, factor = record["n"], record["factor"]
        if n < least:
            continue
        stars = 100 * (1 - record["roots"] / n)
        published = PUBLISHED_STARS.get((n, factor))
        stages, updates = PUBLISHED_STEPS.get(factor, (DASH, DASH))
        rows.append(
            [
                f"{record['cls']} {record['solver']}",
                f"{n:,}",
                f"{stars:.1f}",
                DASH if published is None else f"{published}",
                str(record["stages"]),
                str(stages),
                f"{record['paths'] / max(1, record['stages']):.1f}",
                str(record["levels"]),
                str(record["clock_steps"]),
                str(updates),
                f"{record['expansions'] / n:.1f}",
            ]
        )
    head = [
        "costs",
        "n",
        "first stars, %",
        "published",
        "stages",
        "published",
        "paths a stage",
        "levels",
        "dual updates",
        "published",
        "expansions a row",
    ]
    return table(head, rows)


def _scaling(kind: str) -> str:
    sizes = [round(10_000 * p**0.5) if kind == "Weak" else 20_000 for p in DEVICES]
    published = PUBLISHED_WEAK if kind == "Weak" else PUBLISHED_STRONG
    rows = []
    for at, (p, n) in enumerate(zip(DEVICES, sizes, strict=True)):
        ours = f"{1000 * simulated_seconds(n, p):.1f}"
        rows.append([str(p), f"{n:,}", ours, *(f"{seconds[at]}" for seconds in published.values())])
    head = ["devices", "n", "simulated, ms", "published classical, s", "published trees, s"]
    return (
        f"{kind} scaling, U{{0..10n}}, **simulated**: times of one device and of messages between"
        " two H100 were measured, the sums are computed. Published: K20X.\n\n" + table(head, rows)
    )
