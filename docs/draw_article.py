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

HERE = Path(__file__).parent / "how"


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


def main() -> None:
    """Draw all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "pictures")
    parser.add_argument("--n", type=int, default=4000, help="size of the problems solved")
    chosen = parser.parse_args()
    out = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    draw_search(out / "search.svg", out / "queue.svg")


if __name__ == "__main__":
    main()
