# %% [markdown]
# # A walk through BigSAP
#
# Cells separated by `# %%`: open this file as a notebook (VS Code, Spyder, PyCharm, or
# `jupytext --to notebook walkthrough.py`), or run it from end to end:
#
#     python examples/walkthrough.py --out pictures            # n = 200, seconds
#     python examples/walkthrough.py --out pictures --full     # n = 1,000, as in the paper
#
# It draws figures 1 and 3 of Guthe and Thuerck, *Algorithm 1015* (ACM TOMS 47(2), 2021):
# rows scanned per augmentation with and without epsilon phases, and how fast the prices
# converge as epsilon falls. Needs matplotlib.
#
# Measured on 2 shared cores: n = 1,000 (full size, a minute): 24,022 rows scanned plainly, 12,311
# in phases; n = 200 in 4 s: 2,309 and 1,684.

# %%
"""A walk through BigSAP that draws figures 1 and 3 of the paper."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np

import bigsap
from bigsap import checkpoint

mpl.use("Agg")
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(), help="folder for the pictures")
parser.add_argument("--n", type=int, default=200)
parser.add_argument("--full", action="store_true", help="n = 1,000, and figure 3 up to 8,000")
chosen, _ = parser.parse_known_args()  # a notebook has arguments of its own
n = 1_000 if chosen.full else chosen.n
sizes = [1_000, 2_000, 4_000, 8_000] if chosen.full else [n // 2, n, 2 * n]
chosen.out.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## One problem
#
# A result carries its proof: `bound` is what no assignment can undercut, and the certificate
# that proves it was made by code that shares nothing with the solver.

# %%
rng = np.random.default_rng(0)
cost = rng.random((n, n))
result = bigsap.solve(cost)
print(f"random: n = {n:,}, cost {result.fun:.9g}, bound {result.bound:.9g}, gap {result.gap:.1g}")
certificate = result.verify(cost)
reduced = cost - result.u[:, None] - result.v[None, :]
print(f"no reduced cost is below {reduced.min():.1e}, those of the pairs are 0:", end=" ")
print(f"{np.abs(reduced[result.row_ind, result.col_ind]).max():.1e} at most")

# %% [markdown]
# ## Figure 1: what an augmentation costs
#
# A source that Python reads, with a cache of a single row, is asked for every row that is
# scanned, and the callback comes after each. A checkpoint after each shows the matching: the
# rows whose column changed are the path.


# %%
class Rows:
    """The matrix as something that only gives rows: nothing is scanned in place."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix, self.shape, self.dtype = matrix, matrix.shape, matrix.dtype

    def read(self, rows: np.ndarray, columns: slice, out: np.ndarray) -> None:
        out[...] = self.matrix[rows, columns]

    def fingerprint(self) -> str:
        return hashlib.sha256(self.matrix.tobytes()).hexdigest()


def trace(matrix: np.ndarray, *, epsilon: bool) -> tuple[np.ndarray, np.ndarray, bigsap.Result]:
    """(phase, rows assigned before, rows scanned) and the same with path lengths; the result."""
    scans: dict[tuple[int, int], int] = {}
    paths: dict[tuple[int, int], int] = {}
    now, scanned = (0, 0), 0  # phase and rows assigned, rows scanned, when watch last came
    then, matching = 0, np.empty(0)  # phase and matching of the last checkpoint

    # Thousands of small checkpoints: in memory where there is such a folder.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        file = Path(folder) / "trace.checkpoint"

        def note(phase: int, new: np.ndarray) -> None:
            nonlocal then, matching
            size = int((new >= 0).sum())
            if then == phase and size == (matching >= 0).sum() + 1:
                paths[phase, size - 1] = int((new != matching).sum())
            then, matching = phase, new

        def watch(progress: bigsap.Progress) -> None:
            nonlocal now, scanned
            if now[0] and progress.rows_scanned > scanned:
                scans[now] = scans.get(now, 0) + progress.rows_scanned - scanned
            now, scanned = (progress.phase, progress.assigned), progress.rows_scanned
            if file.exists() and progress.phase:
                note(progress.phase, checkpoint.read(file).snapshot["column_of_row"])

        done = bigsap.solve(
            Rows(matrix),
            method="ssp",
            epsilon=epsilon,
            cache=matrix[0].nbytes,
            callback=watch,
            callback_every=0,
            checkpoint=file,
            checkpoint_every=0,
        )
        note(done.nit, done.col4row)
    as_tables = [np.array([(*k, v) for k, v in d.items()], int) for d in (scans, paths)]
    return *as_tables, done


plain = trace(cost, epsilon=False)
phased = trace(cost, epsilon=True)
figure, axes = plt.subplots(2, 2, figsize=(9, 5.5), sharex=True, sharey="row")
for column, (name, (scans, paths, done)) in enumerate(
    {"plain successive shortest paths": plain, "epsilon phases (Algorithm 1015)": phased}.items()
):
    total = done.stats["rows_scanned"]
    if not np.isclose(done.fun, result.fun, rtol=1e-12):
        raise SystemExit(f"{name}: {done.fun} differs from {result.fun}")
    axes[0, column].set_title(f"{name}: {total:,} rows scanned", fontsize=10)
    for row, (table, label) in enumerate(((paths, "path length"), (scans, "rows scanned"))):
        axis = axes[row, column]
        for phase in np.unique(table[:, 0]):
            of_phase = table[table[:, 0] == phase]
            epsilon = done.stats["phases"][phase - 1]["epsilon"]
            axis.plot(*of_phase[:, 1:].T, ".", markersize=3, label=f"epsilon {epsilon:.2g}")
        axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.set_ylabel(label if column == 0 else "")
    axes[1, column].set_xlabel("rows assigned before")
    axes[1, column].legend(fontsize=7)
figure.tight_layout()
figure.savefig(chosen.out / "figure1.png", dpi=110)
print(
    f"figure 1: {plain[2].stats['rows_scanned']:,} rows scanned plainly,"
    f" {phased[2].stats['rows_scanned']:,} in {phased[2].nit} phases; wrote"
    f" {chosen.out / 'figure1.png'}"
)

# %% [markdown]
# ## Figure 3: epsilon and the distance to the final prices
#
# A solve that is stopped when phase p + 1 begins shows the prices at the end of phase p. They
# lie above the final ones, on average by a small multiple of epsilon (dotted: by epsilon):
# that is why few phases suffice.


# %%
def disjoint(n: int, rng: np.random.Generator) -> np.ndarray:
    x, y = rng.random((n, 2)), rng.random((n, 2))
    x[n // 2 :] += 1
    y += np.where(np.arange(n)[:, None] < n // 2, [0.0, 1.0], [1.0, 0.0])
    return ((x[:, None] - y[None]) ** 2).sum(axis=2)


def geometric(n: int, rng: np.random.Generator) -> np.ndarray:
    return ((rng.random((n, 1, 2)) - rng.random((1, n, 2))) ** 2).sum(axis=2)


def rank2(n: int, rng: np.random.Generator) -> np.ndarray:
    a = rng.random((n, 2))
    return a @ a.T


FAMILIES = {
    "random": lambda n, rng: rng.random((n, n)),
    "geometric": geometric,
    "disjoint": disjoint,
    "rank 2": rank2,
}


def distances(matrix: np.ndarray) -> list[tuple[float, float]]:
    """(epsilon, mean distance of the prices from the final ones) of each phase but the last."""
    final = bigsap.solve(matrix, method="ssp")
    found = []
    for phase in range(1, final.nit):

        def stop(progress: bigsap.Progress, phase: int = phase) -> None:
            if progress.phase > phase:
                raise StopIteration

        part = bigsap.solve(matrix, method="ssp", callback=stop)
        above = part.v - final.v  # prices are free in one constant, the least difference
        found.append((final.stats["phases"][phase - 1]["epsilon"], (above - above.min()).mean()))
    return found


figure, axes = plt.subplots(2, 2, figsize=(9, 6.5))
for axis, (name, family) in zip(axes.flat, FAMILIES.items(), strict=True):
    for shade, size in zip(np.linspace(0.35, 1.0, len(sizes)), sizes, strict=True):
        points = np.array(distances(family(size, np.random.default_rng(size)))).reshape(-1, 2)
        axis.loglog(*points.T, "o-", color=plt.cm.Blues(shade), label=f"n = {size:,}")
        if len(points):
            ratio = np.exp(np.log(points[:, 1] / points[:, 0]).mean())
            print(f"figure 3: {name}, n = {size:,}: mean distance / epsilon = {ratio:.2f}")
    axis.set_title(name, fontsize=10)
    axis.grid(alpha=0.3, which="both")
    axis.plot(axis.get_xlim(), axis.get_xlim(), ":", color="grey", linewidth=1)
    axis.xaxis.set_minor_formatter("")
    axis.yaxis.set_minor_formatter("")
    axis.invert_xaxis()
    axis.set(xlabel="epsilon", ylabel="mean distance to the final prices")
    axis.legend(fontsize=7)
figure.tight_layout()
figure.savefig(chosen.out / "figure3.png", dpi=110)
print(f"figure 3: wrote {chosen.out / 'figure3.png'}")

# %% [markdown]
# ## And the picture that every result can draw

# %%
bigsap.solve(cost, method="ssp").plot().savefig(chosen.out / "solve.png", dpi=110)
print(f"wrote {chosen.out / 'solve.png'}")
