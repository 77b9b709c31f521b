"""Problems made to be got wrong, one a seed: numbers of all sizes, every option, source and place.

``draw`` gives the problem ``number`` of a seed; nothing else decides it. ``tests/support/adversary.py``
solves them for as long as one likes, ``tests/unit/test_adversarial.py`` a fixed number of them. Costs
come from ``adversarial_costs``.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from adversarial_costs import FAMILIES, matrix_of, points_of
from bigsap.sources.base import SCANNABLE
from contracts import read

#: device: simulated. card: a real one.
PLACES = ("host", "device", "cluster", "service", "card")
#: The largest shorter side, and how often, in each place; what is simulated or sent is small.
SIZES = {
    "host": ((8, 35), (40, 38), (150, 20), (600, 4), (1600, 3)),
    "device": ((8, 40), (30, 60)),
    "card": ((8, 20), (60, 35), (400, 30), (1500, 10), (2500, 5)),
    "cluster": ((8, 20), (60, 60), (200, 20)),
    "service": ((8, 40), (60, 60)),
}
#: How a problem is solved: at once, by scipy's name, among others, stopped, continued, kept in a
#: file.
WAYS = {
    "host": (("solve", 50), ("scipy", 8), ("many", 8), ("stopped", 12), ("resumed", 12), ("kept", 10)),
    "device": (("solve", 85), ("stopped", 15)),
    "card": (("solve", 85), ("stopped", 15)),
    "cluster": (("solve", 85), ("stopped", 15)),
    "service": (("served", 100),),
}
COMPUTED = ("points", "lowrank", "expression", "table", "sum")
KEPT = ("array", "transposed", "npy", "rows", "values", "blocks", "zarr", "masked", "scaled")
#: With a forced pair each, or one faulty reading among points: of all sizes, by all methods.
FORCED_SIZES = ((8, 20), (60, 30), (300, 30), (1000, 5), (1300, 8), (2500, 7))
FORCED_SOURCES = ("array", "array", "array", "rows", "points", "points")
SENT = ("array", "points", "lowrank", "expression", "table", "zarr")


def row_of(i: int, matrix: Any) -> Any:
    return matrix[i]


def value_of(i: int, j: int, matrix: Any) -> Any:
    return matrix[i, j]


def block_of(rows: Any, out: Any, matrix: Any) -> None:
    out[:] = matrix[rows]


@dataclass(frozen=True)
class Case:
    """One problem and how it is to be solved.

    cost: what ``solve`` is given. matrix: the doubles or integers that it delivers. options: of
    ``solve``, without maximize, unassigned_cost, device and cluster. ordinary: of a problem of
    another kind, turns a result into that of an ordinary problem, and says what is wrong with it.
    """

    seed: int
    number: int
    family: str
    place: str
    way: str
    source: str
    cost: Any
    matrix: np.ndarray
    maximize: bool
    unassigned: Any
    options: dict[str, Any]
    rng: np.random.Generator
    ordinary: Any = None

    @property
    def name(self) -> str:
        """How to get it again: ``python tests/support/adversary.py --again NAME``."""
        return f"{self.seed}:{self.number}:{self.place}"

    def __str__(self) -> str:
        n, m = self.matrix.shape
        told = {k: _short(v) for k, v in self.options.items()}
        if self.maximize:
            told["maximize"] = True
        if self.unassigned is not None:
            told["unassigned_cost"] = _short(self.unassigned)
        return f"{self.name} {self.family} {n} x {m} {self.matrix.dtype} {self.source} {self.way} {told}"


def _short(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, tuple):
        return tuple(map(_short, value))
    return Path(value).name if isinstance(value, Path) else value


def pick(rng: np.random.Generator, weighted: Sequence[tuple[Any, int]]) -> Any:
    """One of them, by their weights."""
    weights = np.array([weight for _, weight in weighted], float)
    return weighted[rng.choice(len(weighted), p=weights / weights.sum())][0]


def draw(seed: int, number: int, place: str, folder: Path, most: int = 2500, forced: bool = False) -> Case:
    """A problem. folder: where its files go. most: rows or columns at most. forced: one pair that
    must be taken, or a faulty reading, and nothing else."""
    rng = np.random.default_rng((seed, number, PLACES.index(place)))
    way = pick(rng, WAYS[place])
    if forced and place == "host":
        way = "scipy" if rng.random() < 0.1 else "solve"
    sizes = FORCED_SIZES if forced and place == "host" else SIZES[place]
    n, m = shape_of(rng, sizes, most if way != "many" else min(most, 40))
    maximize = bool(rng.random() < 0.3)
    kinds = [("computed", 25), ("kept", 75)]
    if place == "service":
        source = "array" if forced else str(rng.choice(SENT, p=[0.5, *[0.1] * 5]))
    elif way in ("scipy", "many"):
        source = "array"
    else:
        source = str(rng.choice(COMPUTED if pick(rng, kinds) == "computed" else KEPT))
        # Small arrays have kernels of their own.
        source = "array" if place == "host" and rng.random() < 0.3 else source
    if place == "cluster":
        source = str(rng.choice(["rows", "blocks", "npy", "points", "expression", "lowrank"]))
    if forced and way != "scipy" and place != "service":
        source = str(rng.choice(FORCED_SOURCES[3 * (place == "cluster") :]))
    families = ("forced",) if forced else FAMILIES
    if source in COMPUTED:
        family, cost = computed(rng, source, n, m, maximize)
        matrix = delivered(cost)
    else:
        family, matrix = matrix_of(rng, n, m, maximize, families)
        cost = given(rng, source, matrix, folder, maximize)
        if source in ("masked", "scaled"):
            matrix = delivered(cost)
    prices = None
    if way not in ("scipy", "many") and rng.random() < (0.05 if forced else 0.2):
        prices = prices_of(rng, matrix, maximize)
    options = options_of(rng, place, way, matrix, maximize, prices is not None)
    return Case(seed, number, family, place, way, source, cost, matrix, maximize, prices, options, rng)


def shape_of(rng: np.random.Generator, sizes: Any, most: int) -> tuple[int, int]:
    """Square more often than not; else one side is up to three times the other, or few."""
    limit = min(most, pick(rng, sizes))
    least = max(1, limit // 5) if limit <= 1024 else 1025  # levels begin there
    n = int(rng.integers(least, limit + 1))
    way = rng.random()
    if way < 0.55:
        return n, n
    if way < 0.9:
        other = min(most, n + int(rng.integers(1, max(2, 2 * n))))
        other = min(other, 2500)
    else:
        other = int(rng.integers(1, n + 1))
    return (n, other) if rng.random() < 0.5 else (other, n)


def computed(rng: np.random.Generator, source: str, n: int, m: int, maximize: bool) -> tuple[str, Any]:
    """Costs that are a formula of few numbers: a family and what computes them."""
    if source == "points":
        x, y, family = points_of(rng, n, m)
        metric = str(rng.choice(["sqeuclidean", "euclidean", "cityblock", "chebyshev"]))
        directed = (x != 0).any(axis=1).all() and (y != 0).any(axis=1).all()
        if directed and zlib.crc32(y.tobytes()) % 5 == 0:
            metric = "cosine"
        return f"{family} {metric}", bigsap.points(x, y, metric=metric)
    if source == "sum":
        x, y, family = points_of(rng, n, m)
        more = bigsap.lowrank(*vectors(rng, n, m))
        return f"sum of {family}", bigsap.sum_of([bigsap.points(x, y), more])
    if source == "table":
        classes = rng.integers(1, 9, 2)
        family, values = matrix_of(rng, *map(int, classes), maximize, FAMILIES)
        row, column = (rng.integers(0, k, s) for k, s in zip(classes, (n, m), strict=True))
        return f"table {family}", bigsap.table(values, row, column)
    a, b = vectors(rng, n, m)
    if source == "lowrank":
        terms = {}
        if rng.random() < 0.3:
            terms["row_terms"] = 10.0 ** rng.uniform(0, 16) * rng.normal(size=n)
        return "lowrank", bigsap.lowrank(a, b, **terms)
    code = str(
        rng.choice(
            [
                "abs(a[i] - b[j])",
                "a[i] * b[j]",
                "(a[i] - b[j]) ** 2 + 1e9",
                "a[i] + b[j]",
                "abs(a[i]) // 1 + i * j",
                "where(i == j, a[i], 1e15)",
                "a[i] if i < j else 1e-9 * b[j]",
            ]
        )
    )
    return f"expression {code}", bigsap.expression(code, (n, m), a=a, b=b)


def vectors(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """A number a row and one a column, some of another size."""
    found = []
    for size in (n, m):
        v = rng.normal(size=size)
        if rng.random() < 0.5:
            v[rng.integers(size, size=int(rng.integers(1, 4)))] *= 10.0 ** rng.uniform(5, 15)
        found.append(np.rint(4 * v) if rng.random() < 0.2 else v)
    return found[0], found[1]


def given(rng: np.random.Generator, source: str, matrix: np.ndarray, folder: Path, maximize: bool) -> Any:
    """A matrix as another source."""
    kinds = {"rows": (row_of, "row"), "values": (value_of, "value"), "blocks": (block_of, "block")}
    if source in kinds:
        function, kind = kinds[source]
        return bigsap.from_function(
            function,
            matrix.shape,
            (matrix,),
            kind=kind,
            compiled=False,
            dtype=matrix.dtype if matrix.dtype in SCANNABLE else np.int64,
        )
    if source == "npy":
        np.save(folder / "costs.npy", matrix)
        return bigsap.from_npy(folder / "costs.npy")
    if source == "zarr":
        import zarr

        chunks = tuple(int(rng.integers(1, size + 1)) for size in matrix.shape)
        chunks = tuple(max(c, -(-size // 8)) for c, size in zip(chunks, matrix.shape, strict=True))
        array = zarr.create_array(
            zarr.storage.MemoryStore(),
            shape=matrix.shape,
            dtype=matrix.dtype,
            chunks=chunks,
            config={"write_empty_chunks": True},
        )
        array[:] = matrix
        return array
    if source == "masked":
        return bigsap.masked(_as_doubles(matrix), rng.random(matrix.shape) < 0.1, maximize=maximize)
    if source == "scaled":
        return bigsap.scaled(_as_doubles(matrix), float(rng.choice([0.5, -1.0, 0.1, 2.0**-60])))
    return np.asfortranarray(matrix) if source == "transposed" else matrix


def _as_doubles(matrix: np.ndarray) -> np.ndarray:
    """For sources that refuse what doubles cannot hold, and the other infinity."""
    doubles = matrix.astype(np.float64)
    doubles[np.isinf(doubles)] = 1e15
    return doubles


def delivered(cost: Any) -> np.ndarray:
    """All costs of a source."""
    source = bigsap.as_source(cost)
    return read(source, np.arange(source.shape[0]))


def prices_of(rng: np.random.Generator, matrix: np.ndarray, maximize: bool) -> Any:
    """``unassigned_cost`` of rows: one, or many of the size of their costs, some infinite."""
    n = matrix.shape[0]
    finite = matrix[np.isfinite(matrix)] if matrix.dtype.kind == "f" else matrix.ravel()
    if not finite.size:
        return 1.0
    found = rng.choice(finite, n)
    if matrix.dtype.kind in "iu":
        if np.abs(finite.astype(float)).max() >= 2**50:
            return int(found[0]) if abs(int(found[0])) < 2**61 else 7
        return found if rng.random() < 0.5 else int(found[0])
    found = found.astype(np.float64)
    if rng.random() < 0.3:
        found[rng.random(n) < 0.3] = -math.inf if maximize else math.inf
    if rng.random() < 0.2:
        found[rng.integers(n)] = 10.0 ** rng.uniform(-300, 15)
    return found if rng.random() < 0.7 else float(found[0])


def options_of(
    rng: np.random.Generator, place: str, way: str, matrix: np.ndarray, maximize: bool, gated: bool
) -> dict[str, Any]:
    """What ``solve`` may be asked for, each now and then."""
    if way in ("scipy", "many"):
        return {}
    found: dict[str, Any] = {}
    n, m = matrix.shape
    methods = [("auto", 40), ("ssp", 20), ("compressed", 20), ("hungarian", 12), ("auction", 8)]
    method = str(pick(rng, methods))
    if place == "cluster":
        method = str(rng.choice(["auto", "compressed"]))
    if place in ("device", "card"):
        method = str(rng.choice(["auto", "ssp", "compressed", "hungarian"]))
    if method != "auto":
        found["method"] = method
    if method == "hungarian" and max(n, m) > 300:
        found["variant"] = str(rng.choice(["auto", "tree"]))
    elif method == "hungarian":
        found["variant"] = str(rng.choice(["auto", "tree", "classical"]))
    if method == "auction":
        found["variant"] = str(rng.choice(["plain", "scaled"]))
    if rng.random() < 0.1:
        found["epsilon"] = False
    elif rng.random() < 0.4:
        found["start"] = str(rng.choice(["levels", "estimate", "none"]))
    if rng.random() < 0.3:
        found["certify"] = "pairs"
    if rng.random() < 0.15 and place != "service" and way not in ("stopped", "kept"):
        found["certify"] = False
    if rng.random() < 0.3:
        found["seed"] = int(rng.integers(100))
    if rng.random() < 0.15:
        found["warm_start"] = warm_of(rng, matrix)
    if place == "host" and rng.random() < 0.2:
        found["threads"] = 2
    if place == "host" and rng.random() < 0.1:
        found["cache"] = int(rng.integers(1, 9)) * m * 8
    if rng.random() < 0.1 and found.get("certify") is not False:
        finite = np.abs(matrix[np.isfinite(matrix)].astype(float))
        if finite.size:
            found["gap"] = float(np.median(finite) * 10.0 ** rng.uniform(-17, 1))
    return found


def warm_of(rng: np.random.Generator, matrix: np.ndarray) -> Any:
    """Prices, most of them absurd, some with an assignment."""
    n, m = matrix.shape
    finite = np.abs(matrix[np.isfinite(matrix)].astype(float))
    size = float(finite.max()) if finite.size else 1.0
    size = min(size, 1e280) * float(rng.choice([0.5, 1e3, 1e12]))
    v = size * rng.normal(size=m)
    if rng.random() < 0.3:
        v[rng.random(m) < 0.9] = 0.0
    if rng.random() < 0.3:
        columns = np.full(n, -1, np.intp)
        k = min(n, m)
        columns[:k] = rng.permutation(m)[:k]
        return v, columns
    return v
