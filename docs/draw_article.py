"""Draw the pictures of docs/how from real solves: ``python docs/draw_article.py [--out DIR]``."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import draw_style as style
import matplotlib.pyplot as plt
import numpy as np
from draw import disjoint

import bigsap
from bigsap.engine.lists.ordering import compact_order

HERE = Path(__file__).parent / "how"


def uniform(n: int) -> tuple[Any, Any]:
    """Points of one square on both sides."""
    x, y = np.random.default_rng(0).random((2, n, 2))
    return x, y


POINTS = {"points in one square": uniform, "points in two regions each, apart": disjoint}


def code_of(page: str, **replaced: str) -> dict[str, Any]:
    """The names that the code of a page of docs/how leaves; some of its numbers replaced."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", (HERE / page).read_text(), re.S | re.M):
        for old, new in replaced.items():
            block = re.sub(rf"^{old} = .*$", f"{old} = {new}", block, flags=re.M)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, page, "exec"), names)
    return names


def _lines(axis: Any, x: Any, y: Any, pairs: Any, **look: Any) -> None:
    for i, j in pairs:
        axis.plot(*zip(x[i], y[j], strict=True), **look)


def draw_search(search_file: Path, queue_file: Path) -> None:
    """One search of docs/how/paths.md, before and after its augmentation, and its queue."""
    import heapq

    names = code_of("paths.md")
    n = 40
    rng = np.random.default_rng(5)
    x, y = rng.random((2, n, 2))
    names.update(n=n, x=x, y=y, cost=((x[:, None] - y) ** 2).sum(axis=2), v=np.zeros(n), heapq=heapq)
    names.update(column=np.full(n, -1), row=np.full(n, -1))
    names["lists"] = [names["evaluate"](i, 8) for i in range(n)]
    longest: tuple[int, Any] = (0, None)
    for root in range(n):
        seen, reached_by = names["search"](root)
        before = names["column"].copy()
        names["augment"](root, seen, reached_by)
        changed = int((before != names["column"]).sum())
        if changed >= longest[0]:
            longest = changed, (root, seen, reached_by, before, names["column"].copy())
    root, seen, reached_by, before, after = longest[1]
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.7), sharex=True, sharey=True, layout="constrained")
    titles = "the search: columns it settled, and by which row", "after: the chain has moved"
    for axis, pairs, title in zip(axes, (before, after), titles, strict=True):
        changed = before != after
        for i in np.flatnonzero(pairs >= 0):
            look = {"color": style.RED, "lw": 2} if changed[i] else {"color": style.GREY, "lw": 1}
            _lines(axis, x, y, [(i, pairs[i])], **look)
        axis.plot(*x.T, "o", ms=3.5, color=style.BLUE, label="rows")
        axis.plot(*y.T, "s", ms=3.5, color=style.ORANGE, label="columns")
        axis.set_title(title, fontsize=8)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.grid(visible=False)
    settled = [which for _, kind, which in seen if kind == "column"]
    _lines(axes[0], x, y, [(reached_by[j], j) for j in settled], color=style.BLUE, lw=1, ls=":")
    axes[0].plot(*x[root], "o", ms=9, mfc="none", color=style.RED)
    axes[0].plot(*y[settled[-1]], "s", ms=9, mfc="none", color=style.RED)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    style.save(figure, search_file)
    _draw_queue(queue_file, seen)


def _draw_queue(file: Path, seen: list[tuple[float, str, int]]) -> None:
    figure, axis = plt.subplots(figsize=(7, 2.8))
    for kind, mark, colour, name in (
        ("column", "o", style.BLUE, "a column is settled at its label"),
        ("an event", "^", style.ORANGE, "an event: a row is read again"),
    ):
        places = [k for k, item in enumerate(seen) if item[1] == kind]
        axis.plot(places, [seen[k][0] for k in places], mark, ms=4, color=colour, label=name)
    axis.plot(len(seen) - 1, seen[-1][0], "o", ms=10, mfc="none", color=style.RED, label="free: the end")
    axis.set(xlabel="what comes out of the queue, in order", ylabel="key")
    axis.legend()
    style.save(figure, file)


def draw_prices(file: Path) -> None:
    """Prices of the whole of docs/how/levels.md, and errors of prices from its quarters."""
    names = code_of("levels.md")
    y, v = names["y"], names["whole"].v
    panels = [("prices of the whole", v - v.mean())]
    panels += [(f"errors from a quarter drawn {how}", error) for how, error in names["errors"].items()]
    figure, axes = plt.subplots(1, 3, figsize=(7.4, 2.9), sharex=True, sharey=True, layout="constrained")
    most = 3 * float(v.std())
    for axis, (title, value) in zip(axes, panels, strict=True):
        look = {"c": value, "cmap": "coolwarm", "vmin": -most, "vmax": most}
        shown = axis.scatter(*y.T, s=2, marker="s", linewidths=0, rasterized=True, **look)
        axis.set_title(title, fontsize=7.5)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    figure.colorbar(shown, ax=axes, shrink=0.8)
    style.save(figure, file)


def draw_levels(file: Path, sizes: list[int]) -> None:
    """Scans a row without levels and with them, over all levels."""
    figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharex=True)
    for axis, (title, points) in zip(axes, POINTS.items(), strict=True):
        for start, name in (("none", "without levels"), ("levels", "with levels, all of them counted")):
            done = [bigsap.solve(bigsap.points(*points(n)), method="compressed", start=start) for n in sizes]
            scans = [result.stats["rows_scanned"] / n for result, n in zip(done, sizes, strict=True)]
            axis.plot(sizes, scans, "o-", ms=4, label=name)
        axis.set_title(title, fontsize=8)
        axis.set(xscale="log", xlabel="n", ylim=(0, None))
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
    axes[0].set_ylabel("rows scanned per row of the problem")
    axes[0].legend()
    style.save(figure, file)


def draw_refinement(file: Path, n: int) -> None:
    """The gap that the prices of docs/how/proof.md prove, by the size of a forced pair's rivals."""
    cost = code_of("proof.md")["cost"][:n, :n].copy()
    sizes = 10.0 ** np.arange(3, 19)
    gaps: dict[str, list[float]] = {"prices of one double": [], "prices of two doubles": []}
    for size in sizes:
        cost[0, 1:] = cost[1:, 0] = size
        result = bigsap.solve(cost)
        for name, low in zip(gaps, (None, result.v_low), strict=True):
            proved = bigsap.certify(cost, result.col4row, result.v, low)
            gaps[name].append(max(proved.gap / proved.size, 1e-17))
    figure, axis = plt.subplots(figsize=(7, 3))
    for name, gap in gaps.items():
        axis.plot(sizes, gap, "o-", ms=4, label=name)
    axis.axhline(2.0**-50, color=style.RED, ls="--", label="optimal: at most $2^{-50}$")
    axis.set(xscale="log", yscale="log", xlabel="the huge cost (all others: up to 100)")
    axis.set_ylabel("gap / assigned costs (0: below)")
    axis.legend()
    style.save(figure, file)


def draw_boxes(file: Path, n: int) -> None:
    """Boxes of 16 columns, and which of them a row must open if it knows each box's largest price."""
    x, y = uniform(n)
    v = bigsap.solve(bigsap.points(x, y)).v
    leaves = compact_order(y).reshape(-1, 16)
    low, high, top = y[leaves].min(axis=1), y[leaves].max(axis=1), v[leaves].max(axis=1)
    row = int(((x - [0.45, 0.55]) ** 2).sum(axis=1).argmin())
    nearest = np.clip(x[row], low, high)
    bound = ((x[row] - nearest) ** 2).sum(axis=1) - top
    best = float((((x[row] - y) ** 2).sum(axis=1) - v).min())
    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for opened, colour, name in (
        (False, style.GREY, "ruled out by its bound"),
        (True, style.ORANGE, "opened"),
    ):
        for k in np.flatnonzero((bound < best) == opened):
            size = high[k] - low[k]
            label = f"{int(((bound < best) == opened).sum())} boxes {name}"
            box = plt.Rectangle(low[k], *size, fill=opened, color=colour, lw=0.7, label=label)
            axis.add_patch(box)
    axis.plot(*x[row], "o", ms=5, color=style.BLUE, label="the row")
    handles, labels = axis.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    axis.legend(named.values(), named.keys(), loc="center left", bbox_to_anchor=(1, 0.5))
    axis.set(xticks=[], yticks=[], aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    style.save(figure, file)


def draw_pairs(file: Path, sizes: list[int]) -> None:
    """Pairs that the proof reads, a row."""
    figure, axis = plt.subplots(figsize=(7, 3))
    for name, points in POINTS.items():
        read = [bigsap.solve(bigsap.points(*points(n))).stats["certificate_pairs"] / n for n in sizes]
        axis.plot(sizes, read, "o-", ms=4, label=name)
    axis.plot(sizes, sizes, ":", color=style.GREY, label="all pairs")
    axis.set(xscale="log", yscale="log", xlabel="n", ylabel="pairs read per row", ylim=(10, None))
    axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axis.xaxis.minorticks_off()
    axis.legend()
    style.save(figure, file)


def draw_dimensions(file: Path, n: int) -> None:
    """Share of the columns that a row must look at, by boxes and by float32 products."""
    sizes, some = [2, 3, 4, 6, 8, 12, 16, 32, 64, 128], 200
    boxes, products = [], []
    for d in sizes:
        x, y = np.random.default_rng(d).normal(size=(2, n, d))
        v = bigsap.solve(bigsap.points(x, y)).v
        seen = np.stack([((row - y) ** 2).sum(axis=1) for row in x[:some]]) - v
        best = seen.min(axis=1)
        leaves = compact_order(y).reshape(-1, 16)
        low, high, top = y[leaves].min(axis=1), y[leaves].max(axis=1), v[leaves].max(axis=1)
        nearest = [((row - np.clip(row, low, high)) ** 2).sum(axis=1) - top for row in x[:some]]
        boxes.append(float((np.stack(nearest) <= best[:, None]).mean()))
        a, b = (x[:some] ** 2).sum(axis=1)[:, None], (y**2).sum(axis=1)
        error = 2.0**-24 * (2 * (d + 32) * np.sqrt(a * b) + 24 * (a + b + abs(v)))
        bounds = a + b - 2.0 * (np.float32(x[:some]) @ np.float32(y.T)) - error - v
        products.append(float((bounds <= best[:, None]).mean()))
    figure, axis = plt.subplots(figsize=(7, 3))
    axis.plot(sizes, boxes, "o-", ms=4, label="in boxes of 16 columns that must be opened")
    axis.plot(sizes, products, "o-", ms=4, label="not excluded by a float32 product")
    axis.axhline(1 / n, color=style.GREY, ls=":", label="the best column alone")
    axis.set(xscale="log", yscale="log", xlabel="coordinates (normal points)")
    axis.set_ylabel(f"share of {n:,} columns")
    axis.set_xticks(sizes, [str(d) for d in sizes])
    axis.xaxis.minorticks_off()
    axis.legend()
    style.save(figure, file)


def main() -> None:
    """Draw all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "pictures")
    parser.add_argument("--n", type=int, default=4000, help="size of the problems solved")
    chosen = parser.parse_args()
    out = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    n = chosen.n
    draw_search(out / "search.svg", out / "queue.svg")
    draw_prices(out / "prices.svg")
    draw_dimensions(out / "dimensions.svg", 1 << (n.bit_length() - 1))
    draw_refinement(out / "refinement.svg", n)
    draw_boxes(out / "boxes.svg", 1 << (n.bit_length() - 1))
    draw_pairs(out / "pairs.svg", [n // 2, n, 2 * n, 4 * n, 8 * n])
    draw_levels(out / "levels.svg", [n // 2, n, 2 * n, 4 * n])


if __name__ == "__main__":
    main()
