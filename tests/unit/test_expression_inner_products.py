"""Formulas that are functions of inner products: which are, and that answers stay those of the matrix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.lists import products
from contracts import whole

SQUARES = "sum((x[i, k] - y[j, k])**2 for k in range(D))"
PRODUCTS = "sum(x[i, k] * y[j, k] for k in range(D))"
D = 12


def formula(text: str, n: int = 60, m: int = 300, **arrays: np.ndarray) -> bigsap.CostSource:
    g = np.random.default_rng(3)
    given = {
        "x": g.normal(size=(n, D)),
        "y": g.normal(size=(m, D)),
        "a": g.normal(size=n),
        "b": g.normal(size=m),
    }
    given |= {"c": 0.5, **arrays}
    return bigsap.expression(text, (n, m), **given)


@pytest.mark.some(5)
@pytest.mark.parametrize(
    ("text", "kind", "plain"),
    [
        (SQUARES, "square", True),
        ("sum((y[j, k] - x[i, k]) * (y[j, k] - x[i, k]) for k in range(D))", "square", True),
        (f"0.5 * {SQUARES}", "square", False),
        (f"{SQUARES} * c", "square", False),
        (f"sqrt({SQUARES})", "root", True),
        (f"2 * sqrt({SQUARES})", "root", False),
        (PRODUCTS, "product", True),
        ("sum(x[i, k] * y[j, k] for k in range(9))", "product", True),
        (f"-{PRODUCTS}", "product", False),
        (f"-3 * {PRODUCTS}", "product", False),
        (f"1 - {PRODUCTS}", "product", False),
        (f"a[i] - 2 * {PRODUCTS} + b[j]", "product", False),
        (f"c * {PRODUCTS} + y[j, 3]", "product", False),
    ],
)
def test_what_matrix_products_bound(text: str, kind: str, plain: bool) -> None:
    for source in (formula(text), formula(text).transposed()):
        found = source.product()
        assert found is not None
        assert found.kind == kind
        assert (source.fill().many is not None) == plain
        x, y = np.asarray(found.x, float), np.asarray(found.y, float)
        if kind == "product":
            rebuilt = x @ y.T + found.row_terms[:, None] + found.column_terms
        else:
            rebuilt = (found.weights * (x[:, None] - y) ** 2).sum(axis=2)
            rebuilt = np.sqrt(rebuilt) if kind == "root" else rebuilt
        np.testing.assert_allclose(whole(source), rebuilt, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        f"-{SQUARES}",
        f"1 + {SQUARES}",
        f"{PRODUCTS} + {PRODUCTS}",
        f"a[i] + 1 - {PRODUCTS}",
        f"{PRODUCTS} * b[j]",
        f"0.1 * (10 * {SQUARES})",  # two roundings, and a factor of 1
        f"1e20 * (1e-20 * {PRODUCTS})",
        f"5 * sqrt({SQUARES}) * 0.2",
        f"1e40 * {PRODUCTS}",
        f"(1 + {PRODUCTS}) * 2",
        f"a[i] + b[j] + a[i] + {PRODUCTS}",
        f"{PRODUCTS} / 2",
        f"min({PRODUCTS}, 1)",
        f"a[i] + b[j] + a[i] - a[i] + {PRODUCTS}",
        "sum((x[i, k] - y[j, k])**3 for k in range(D))",
        "sum((x[i, k] - x[i, 0])**2 for k in range(D))",
        "sum(x[i, k] * y[j, 0] for k in range(D))",
        "sum(x[i, k] * x[i, k] for k in range(D))",
        "sum(abs(x[i, k] - y[j, k]) for k in range(D))",
        f"inf * {PRODUCTS}",
        f"0 * {PRODUCTS}",
        f"{PRODUCTS} + inf",
        "a[i] * b[j]",
    ],
)
def test_what_they_do_not(text: str) -> None:
    assert formula(text).product() is None


def test_infinite_tiny_and_huge_coordinates_have_none() -> None:
    x = np.ones((60, D))
    x[3, 4] = np.inf
    assert formula(PRODUCTS, x=x).product() is None
    for size in (1e-160, 1e250):  # squares that float64 does not hold
        for text in (f"9e29 * {PRODUCTS}", f"9e29 * sqrt({SQUARES})"):
            for one in ({"x": np.full((60, D), size)}, {"y": np.full((300, D), size)}):
                source = formula(text, **one)
                assert source.product() is source.transposed().product() is None
    b = np.zeros(300)
    b[7] = np.inf
    assert formula(f"{PRODUCTS} + b[j]", b=b).product() is None


@pytest.mark.parametrize("text", [SQUARES, f"3 * sqrt({SQUARES})", f"a[i] - 2 * {PRODUCTS}"])
@pytest.mark.parametrize("maximize", [False, True])
def test_solves_on_lists_by_products_are_those_of_the_matrix(
    monkeypatch: pytest.MonkeyPatch, text: str, maximize: bool
) -> None:
    monkeypatch.setattr(policy, "KEPT_BYTES", 0)
    monkeypatch.setattr(policy, "PROOF_PRODUCT_PAIRS", 1)
    evaluated = []
    real = products.Products.evaluate

    def noted(self: products.Products, rows: np.ndarray, *given: object) -> object:
        evaluated.append(rows.size)
        return real(self, rows, *given)

    monkeypatch.setattr(products.Products, "evaluate", noted)
    source = formula(text, 300, 320)
    cost = whole(source)
    for some in (source, pickle.loads(pickle.dumps(source))):
        found = bigsap.solve(some, method="compressed", cache=4096, maximize=maximize)
        assert found.status == "optimal"
        assert found.fun == bigsap.solve(cost, maximize=maximize).fun
        found.verify(cost)
    assert bool(evaluated) == (not (maximize and "sqrt" in text))


def test_many_rows_have_the_bits_of_one() -> None:
    for text in (SQUARES, f"sqrt({SQUARES})", PRODUCTS):
        source = formula(text, 40, 1000)
        rows, columns = np.array([3, 0, 39, 3, 17]), slice(5, 777)
        together, alone = np.empty((2, 5, 772))
        source.read(rows, columns, together)
        for k in range(5):
            source.read(rows[k : k + 1], columns, alone[k : k + 1])
        assert np.array_equal(together, alone)
        assert source.fill().many is not None


@pytest.mark.parametrize("kind", ["formula", "lowrank"])
def test_huge_terms_beside_tiny_products(kind: str) -> None:
    """The unit of tiny vectors would bring such a term beyond float64."""
    g = np.random.default_rng(3)
    x, y, a = 1e-50 * g.normal(size=(290, D)), 1e-50 * g.normal(size=(300, D)), np.zeros(290)
    a[3] = 1e300
    if kind == "formula":
        source = formula(f"a[i] + {PRODUCTS}", 290, 300, x=x, y=y, a=a)
    else:
        source = bigsap.lowrank(x, y, row_terms=a)
    found = bigsap.solve(source, method="compressed", cache=4096)
    assert found.fun == bigsap.solve(whole(source), method="ssp").fun


@pytest.mark.parametrize("outlier", [1e6, 1e13, 1e150])
def test_an_outlier_beside_usual_vectors(outlier: float) -> None:
    g = np.random.default_rng(5)
    x, y = g.normal(size=(2, 280, D))
    x[5] *= outlier
    for text in (SQUARES, f"1 - {PRODUCTS}"):
        source = formula(text, 280, 280, x=x, y=y)
        found = bigsap.solve(source)
        assert found.status == "optimal"
        assert found.fun == bigsap.solve(whole(source), method="ssp").fun
