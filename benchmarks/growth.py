"""Tables of sizes against classes, as the paper prints them, and how they grow with n."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.report import DASH, table

#: What was measured: class -> n -> value.
Curves = dict[str, dict[int, float]]


def fit(values: dict[int, float]) -> tuple[float, float, float] | None:
    """x, y and error of ``x n^y``, least squares; None below three sizes.

    The error is the root mean square error as a share of the range of the values.
    """
    if len(values) < 3 or len(set(values.values())) < 2:
        return None
    n, found = np.array(list(values), float), np.array(list(values.values()), float)

    def best(y: float) -> tuple[float, float]:
        """x for this y, and the mean square error."""
        power = (n / n.max()) ** y
        x = float(power @ found / (power @ power))
        return x / n.max() ** y, float(((x * power - found) ** 2).mean())

    # The error has one valley in y for what grows; a grid, then a finer one around its best.
    grid = np.linspace(-1.0, 4.0, 501)
    for width in (0.01, 0.0001):
        y = min(grid, key=lambda y: best(y)[1])
        grid = np.linspace(y - width, y + width, 201)
    x, error = best(y)
    return x, float(y), float(np.sqrt(error) / np.ptp(found))


def by_size(curves: Curves, text: Callable[[float], str]) -> str:
    """Rows are sizes, columns are classes; then ``x n^y`` and its error where it can be told."""
    classes = list(curves)
    sizes = sorted({n for values in curves.values() for n in values})
    rows = [[f"{n:,}", *(text(curves[c][n]) if n in curves[c] else DASH for c in classes)] for n in sizes]
    fits = [fit(curves[c]) for c in classes]
    if any(fits):
        rows.append(["x n^y", *(f"{f[0]:.3g} n^{f[1]:.3f}" if f else DASH for f in fits)])
        rows.append(["nrmse", *(f"{100 * f[2]:.2f} %" if f else DASH for f in fits)])
    return table(["n", *classes], rows)
