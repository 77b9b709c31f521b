"""Draw the pictures of docs/method.md from real solves: ``python docs/draw.py [--out DIR]``."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from draw_style import GREY, ORANGE, RED, save

import bigsap
from bigsap.engine.core.team import Team
from bigsap.engine.lists import bounds
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.ordering import compact_order
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.strategies.levels import SHARE
from bigsap.strategies.start.strata import one_of_each
from bigsap.types import Array


def disjoint(n: int) -> tuple[Array, Array]:
    """Two point sets whose matched pairs lie far apart (class *disjoint* of the paper)."""
    rng = np.random.default_rng(0)
    x, y = rng.random((n, 2)), rng.random((n, 2))
    upper = np.arange(n) >= n // 2
    x += upper[:, None]
    y += np.where(upper[:, None], [1.0, 0.0], [0.0, 1.0])
    return x, y


def draw_phases(file: Path, n: int) -> None:
    source = bigsap.points(*disjoint(n))
    figure, axis = plt.subplots()
    widest = 0.0
    for place, epsilon in enumerate((False, True)):
        done = bigsap.solve(source, method="ssp", epsilon=epsilon, start="estimate")
        left = 0.0
        for phase in done.stats["phases"]:
            scans = phase["rows_scanned"] / n
            label = f"{phase['epsilon']:.1g}" if phase["epsilon"] else "0"
            axis.barh(place, scans, left=left, edgecolor="white")
            widest = max(widest, scans)
            if scans > 0.05 * widest:
                axis.text(left + scans / 2, place, label, ha="center", va="center", fontsize=7)
            left += scans
    axis.set_yticks([0, 1], ["plain", "epsilon\nphases"])
    axis.set_xlabel(f"rows scanned per row of the problem, by epsilon (disjoint points, n = {n:,})")
    save(figure, file)


def draw_list(file: Path, n: int, k: int = 40) -> None:
    x, y = disjoint(n)
    cost = ((x[0] - y) ** 2).sum(axis=1)
    rng = np.random.default_rng(1)
    v = -rng.random(n) * 0.5
    tau = cost - v
    order = np.argsort(tau)[: 4 * k]
    theta = tau[order[k]]
    later = tau[order] + rng.exponential(0.05, order.size)
    figure, axis = plt.subplots()
    place = np.arange(order.size)
    axis.plot(place[:k], tau[order[:k]], ".", label="the list, when evaluated")
    axis.plot(place[k:], tau[order[k:]], ".", color=GREY, alpha=0.5, label="all other columns")
    axis.plot(place[k:], later[k:], "^", color=ORANGE, markersize=3, label="the same, later")
    axis.axhline(theta, color=RED, label="threshold: nothing unlisted falls below it")
    axis.set(xlabel="columns by c - v", ylabel="c - v")
    axis.legend()
    save(figure, file)


def draw_rows(file: Path, sizes: list[int]) -> None:
    dense, compressed = [], []
    for n in sizes:
        source = bigsap.points(*disjoint(n))
        done = bigsap.solve(source, method="ssp", start="estimate")
        dense.append(done.stats["rows_scanned"] / n)
        done = bigsap.solve(source, method="compressed")
        compressed.append(done.stats["rows_evaluated"] / n)
    figure, axis = plt.subplots()
    axis.plot(sizes, dense, "o-", label="whole rows scanned, Algorithm 1015")
    axis.plot(sizes, compressed, "o-", label="rows evaluated, most only in part: compressed rows")
    axis.set(xlabel="n (disjoint points)", ylabel="per row of the problem")
    axis.legend()
    save(figure, file)


def draw_blocks(file: Path, n: int) -> None:
    x, y = disjoint(n)
    y = y[compact_order(y)]
    source = bigsap.points(x, y)
    v = bigsap.solve(source, method="compressed", seed=1).v
    engine = ListEngine(Problem(source), Team(1), Monitor(), np.dtype(float), 128, 0)
    engine.v[:] = engine.open_price[:] = v
    engine.fit_bounds()
    engine.evaluate(np.array([0]))
    blocks = engine.blocks
    found = np.empty(blocks.n_blocks)
    bounds.bound_row(0, blocks, 0, blocks.n_blocks, found)
    tau = ((x[0] - y) ** 2).sum(axis=1) - v
    true = np.minimum.reduceat(tau, np.arange(0, n, bounds.BLOCK))
    order = np.argsort(true)
    figure, axis = plt.subplots()
    axis.plot(true[order], ".", label="smallest c - v of the block")
    axis.plot(found[order], "_", color=ORANGE, label="bound, without looking at it")
    axis.axhline(engine.lists.theta[0], color=RED, label="threshold of the list of 128")
    opened = int(engine.lists.counts.pairs) / n
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set(xlabel=f"blocks of 128 columns; the evaluation saw {opened:.0%} of the pairs")
    axis.legend()
    save(figure, file)


def draw_samples(file: Path, n: int) -> None:
    """How far samples of a quarter are from having as many rows as columns, cell by cell."""
    generator = np.random.default_rng(0)
    x, y = generator.random((n, 2)), generator.random((n, 2))
    cells = 16
    figure, axes = plt.subplots(1, 2, sharey=True, layout="constrained")
    for axis, title in zip(axes, ("at random", "stratified"), strict=True):
        counts = []
        for points in (x, y):
            order = compact_order(points)
            if title == "stratified":
                some = one_of_each(order, SHARE, generator)
            else:
                some = generator.permutation(n)[: n // SHARE]
            # Against a quarter of what is there: the whole's own imbalance is none of the sample's.
            histogram = [
                np.histogram2d(*chosen.T, bins=cells, range=[[0, 1], [0, 1]])[0]
                for chosen in (points[some], points)
            ]
            counts.append(histogram[0] - histogram[1] / SHARE)
        shown = axis.imshow(counts[0] - counts[1], cmap="RdBu", vmin=-12, vmax=12)
        spread = float(np.std(counts[0] - counts[1]))
        axis.set_title(f"{title}: rows less columns, deviation {spread:.1f}", fontsize=8)
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
    figure.colorbar(shown, ax=axes)
    save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--n", type=int, default=4000, help="size of the problems solved")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    n = chosen.n
    draw_phases(chosen.out / "phases.svg", n // 4)
    draw_list(chosen.out / "list.svg", n)
    draw_rows(chosen.out / "rows.svg", [n // 16, n // 8, n // 4, n // 2, n])
    draw_blocks(chosen.out / "blocks.svg", 2 * n)
    draw_samples(chosen.out / "samples.svg", 4 * n)


if __name__ == "__main__":
    main()
