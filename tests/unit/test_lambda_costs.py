"""Lambdas through the translator of expressions: Python's costs, or Python's errors."""

from __future__ import annotations

import linecache
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_expression_backends import ARRAYS, EXACT, INEXACT, M, N

import bigsap
from bigsap.errors import BigsapError, CallbackError, InvalidCostError, OptionError
from bigsap.sources.compiled import read_by_fill
from bigsap.sources.functions import translation
from bigsap.sources.functions.callbacks import FunctionSource, from_function
from contracts import read
from examples_of import examples

X = np.random.default_rng(1).uniform(-3, 3, 6)
Y = np.array([0.5, -2.0, 0.0, X[3], 1e300])
SHAPE = (6, 5)


def lambda_of(text, **scope):
    """The lambda with this body, its source where Python's tools look for it."""
    name, text = f"<costs {len(linecache.cache)}>", f"f = lambda i, j: {text}"
    linecache.cache[name] = (len(text), None, [text], name)
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def translated(f, shape, args=(), swapped=False):
    """The source with its translation, which the sampling has not yet judged; or None."""
    source = FunctionSource(f, shape, args, "value", None, swapped=swapped)
    source._translation = translation._as_expression(source, f)
    source._decided = True
    return source if source._translation else None


@pytest.fixture
def unjudged(monkeypatch):
    monkeypatch.setattr(translation, "_compare", lambda *_: None)


def by_python(f, i, j):
    """What Python gives for a pair, or "error"."""
    try:
        with np.errstate(all="ignore"):
            value = f(i, j)
            return "error" if np.iscomplexobj(value) else float(value)
    except Exception:  # noqa: BLE001
        return "error"


def by_source(source, row, column):
    out = np.empty((1, 1))
    try:
        source.read(np.array([row]), slice(column, column + 1), out)
    except BigsapError:
        return "error"
    return float(out[0, 0])


def alike(got, expected, ulps=0):
    if "error" in (got, expected):
        return got == expected
    if math.isnan(expected) or math.isinf(expected) or got == expected:
        return got == expected or (math.isnan(got) and math.isnan(expected))
    return abs(got - expected) <= ulps * math.ulp(expected)


# -- random lambdas --------------------------------------------------------------------

MATH = {
    "abs": math.fabs,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "hypot": math.hypot,
    "atan2": math.atan2,
    "where": np.where,
}
NUMPY = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "where": np.where,
}
# Python's pow and x*x*x differ in the last digit, which floor and % may turn into any.
FIXED = EXACT.filter(lambda text: "**" not in text)
COUNTS = {"inside": 0, "all": 0}


def agree(text, scope, swapped, ulps):
    text = text.replace("range(D)", "range(3)")
    f = lambda_of(text, **ARRAYS | {"c": -1.75, "n": N, "m": M, "inf": math.inf} | scope)
    source = translated(f, (M, N) if swapped else (N, M), swapped=swapped)
    COUNTS["all"] += 1
    if source is None:
        return
    COUNTS["inside"] += 1
    for i in range(N):
        for j in range(M):
            got = by_source(source, j, i) if swapped else by_source(source, i, j)
            expected = by_python(f, i, j)
            assert alike(got, expected, ulps), f"{text} at {i}, {j}: {got}, Python {expected}"


@given(text=FIXED, scope=st.sampled_from([MATH, NUMPY]), swapped=st.booleans())
@examples(25)
def test_never_another_cost(text, scope, swapped):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "_compare", lambda *_: None)
        agree(text, scope, swapped, 0)


@given(
    text=INEXACT.filter(lambda text: text.count("**") <= text.endswith(tuple("257)]"))),
    scope=st.sampled_from([MATH, NUMPY]),
)
@examples(15)
def test_never_another_cost_but_for_rounding(text, scope):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "_compare", lambda *_: None)
        agree(text, scope, False, 4)


def test_random_lambdas_were_translated():
    assert COUNTS["inside"] >= 0.3 * COUNTS["all"]


# -- what the rule is about ------------------------------------------------------------

LOGGED = np.array([0.5, 0.0, -1.0, 2.0, math.inf, math.nan])
CASES = {
    "a division by zero": (lambda i, j: 1 / (i - j), CallbackError),
    "one that min would hide": (lambda i, j: min(1 / (i - j), 5.0), CallbackError),
    "one that a comparison would hide": (lambda i, j: 1.0 if 1 / (i - j) > 3 else 2.0, CallbackError),
    "one that a sum would hide": (lambda i, j: min(sum(1 / (k - j) for k in range(3)), 9.0), CallbackError),
    "a remainder by zero": (lambda i, j: (3 + j) % i, CallbackError),
    "a floor by zero": (lambda i, j: 3 // i, CallbackError),
    "a root of a negative number": (lambda i, j: math.sqrt(i - j), CallbackError),
    "a root that a condition would hide": (lambda i, j: 1.0 if math.sqrt(i - j) < 1 else 2.0, CallbackError),
    "a logarithm of zero": (lambda i, j: max(math.log(i), -3.0), CallbackError),
    "an exponential too large": (lambda i, j: min(math.exp(400 * i), 7.0), CallbackError),
    "a complex power": (lambda i, j: abs((-1.0 - j) ** 0.5), None),
    "a power of zero": (lambda i, j: min((1.0 * i) ** -1, 9.0), CallbackError),
    "a square too large": (lambda i, j: min((1e200 * (i + 1)) ** 2, 9.0), CallbackError),
    "numpy's zero divisor": (lambda i, j: 1 / (X[i] - Y[j]), None),
    "numpy's logarithm": (lambda i, j: max(np.log(LOGGED[i]), -3.0), InvalidCostError),
    "a number that is none": (lambda i, j: LOGGED[i] + j, InvalidCostError),
    "min and a number that is none": (lambda i, j: min(3.0, LOGGED[i]), None),
    "integers beyond float64": (lambda i, j: (i + 3) ** (30 + j) % 1000, None),
    "sums beyond float64": (lambda i, j: 2**53 + i - 2**53 + j, None),
    "a floor beyond float64": (lambda i, j: math.floor(Y[j]) % 7, None),
    "a forbidden pair": (lambda i, j: math.inf if i == j else X[i], None),
    "a guarded division": (lambda i, j: 1 / (i - j) if i != j else 0.0, None),
    "guarded by and": (lambda i, j: i != j and 1 / (i - j) > 0.4, None),
    "guarded by or": (lambda i, j: i == j or 1 / (i - j) > 0.4, None),
    "a guarded sum": (lambda i, j: sum(1 / (j - i + 0 * k) for k in range(3)) if i < j else 1.0, None),
    "a minus zero": (lambda i, j: X[i] * -0.0 + 0 * -i, None),
}


SWAPPED = ["a division by zero", "a guarded sum", "numpy's zero divisor"]


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("name", "swapped"), [*((name, False) for name in CASES), *((name, True) for name in SWAPPED)]
)
def test_python_decides(name, swapped, unjudged):
    f, error = CASES[name]
    n, m = SHAPE
    source = translated(f, (m, n) if swapped else (n, m), swapped=swapped)
    assert source is not None
    assert source.evaluated_by == "expression"
    failures = set()
    for i in range(n):
        for j in range(m):
            got = by_source(source, j, i) if swapped else by_source(source, i, j)
            expected = by_python(f, i, j)
            assert alike(got, expected, 4), (i, j, got, expected)
            failures.add(expected == "error" or math.isnan(expected))
    assert (True in failures) == (error is not None) or name == "a complex power"
    if error is CallbackError:
        # Naming the pair, from a whole row, with the user's exception behind it.
        with pytest.raises(CallbackError, match=r"raised \w+Error.*for row \d, column \d") as info:
            read(source, np.arange(source.shape[0]))
        assert isinstance(info.value.__cause__, (ArithmeticError, ValueError))


def test_guards_keep_python_out(unjudged):
    """A condition's other branch is not doubted: Python is not asked."""
    f = CASES["a guarded division"][0]
    source = translated(f, SHAPE)
    asked = []
    source.recover = lambda *_: asked.append(1)
    source._translation = translation._as_expression(source, f)
    fill = source.fill()
    out = np.empty((6, 5))
    read_by_fill(fill, SHAPE, np.arange(6), slice(0, 5), out)
    assert not asked
    source = translated(CASES["a division by zero"][0], SHAPE)
    with pytest.raises(CallbackError):
        read(source, np.arange(6))


OUTSIDE = {
    "truths that numpy adds": lambda i, j: (X[i] < 1) + (Y[j] < 1),
    "a negative truth": lambda i, j: -(X[i] < 1),
    "half precision": lambda i, j: np.exp(X[i] < 1),
    "both sides of where": lambda i, j: np.where(j == 0, 0.0, 1 / j),
    "a zero without a sign": lambda i, j: math.atan2(-i, -1),
    "a long integer": lambda i, j: i * 9007199254740993 - j,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_left_to_numba(name, unjudged):
    assert translated(OUTSIDE[name], SHAPE) is None


# -- through the front door ------------------------------------------------------------


def distance(i, j, x, y):
    total = 0.0
    for k in range(3):
        total += abs(x[i, k] - y[j, k])
    return total


def scaled(x, scale):
    return lambda i, j, y: scale * sum(abs(x[i, k] - y[j, k]) for k in range(x.shape[1]))


def test_lambda_expression_and_python_agree():
    rng = np.random.default_rng(4)
    x, y = rng.random((150, 3)), rng.random((150, 3))
    shape = (150, 150)  # enough pairs to be compiled without being asked
    text = "0.5 * sum(abs(x[i,k] - y[j,k]) for k in range(D))"
    results = {
        "lambda": bigsap.solve(scaled(x, 0.5), shape=shape, args=(y,)),
        "expression": bigsap.solve(bigsap.expression(text, shape, x=x, y=y)),
        "python": bigsap.solve(bigsap.from_function(scaled(x, 0.5), shape, (y,), compiled=False)),
        "numba": bigsap.solve(lambda i, j, y: 0.5 * distance(i, j, x, y), shape=shape, args=(y,)),
    }
    for name, result in results.items():
        assert result.stats["evaluated_by"] == (
            None if name == "expression" else name.replace("lambda", "expression")
        )
        np.testing.assert_array_equal(result.col4row, results["expression"].col4row)
        assert result.fun == pytest.approx(results["expression"].fun, rel=1e-14)
    exact = [bigsap.from_function(scaled(x, 0.5), shape, (y,)), bigsap.expression(text, shape, x=x, y=y)]
    one, two = (read(source, np.arange(150)) for source in exact)
    np.testing.assert_array_equal(one, two)


def test_who_evaluates_is_shown():
    x = np.arange(150.0)
    shape = (150, 150)
    source = from_function(lambda i, j, x: abs(x[i] - j), shape, (x,))
    assert source.evaluated_by is None
    assert "evaluated" not in repr(source)
    source.fill()
    assert source.evaluated_by == "expression"
    assert "evaluated by expression" in repr(source)
    # Costs of another dtype, and what lies outside the language, are numba's.
    assert compiled(lambda i, j: i + 2 * j, dtype="i8").evaluated_by == "numba"
    assert compiled(lambda i, j: round(i / 2) + j).evaluated_by == "numba"
    assert from_function(lambda i, j: i, (3, 3), compiled=False).evaluated_by == "python"
    assert from_function(lambda i: x, shape, compiled=True).evaluated_by == "numba"
    gated = bigsap.solve(lambda i, j, x: abs(x[i] - j), shape=shape, args=(x,), unassigned_cost=9.0)
    assert gated.stats["evaluated_by"] == "expression"
    assert bigsap.solve(np.eye(3)).stats["evaluated_by"] is None


def compiled(f, **options):
    return from_function(f, (6, 5), compiled=True, **options)


def test_an_error_in_the_midst_of_a_solve_is_the_users():
    x = np.arange(200.0)
    with pytest.raises(CallbackError, match=r"raised ZeroDivisionError.*row 77, column 5"):
        bigsap.solve(lambda i, j: 1 / (abs(i - 77) + abs(j - 5)) + x[i], shape=(200, 200))
    with pytest.raises(InvalidCostError, match=r"cost\[3, 0\] is nan"):
        bigsap.solve(lambda i, j: math.nan if i == 3 else x[i] - j, shape=(200, 200))


def test_what_sampling_refuses_is_left_to_numba(monkeypatch):
    """Should the two ever differ on a sampled pair, the expression is not used."""
    real = translation.lambda_expression

    def other(function, shape, args):
        formula = real(function, shape, args)
        return bigsap.expression(formula.code + " + 1", shape)

    monkeypatch.setattr(translation, "lambda_expression", other)
    source = compiled(lambda i, j: abs(i - j))
    assert source.evaluated_by == "numba"
    np.testing.assert_array_equal(read(source, [1])[0], [1, 0, 1, 2, 3])


def test_insisting_names_the_reason_of_numba():
    with pytest.raises(OptionError, match=r"compiled=True, but .*cannot be compiled"):
        compiled(lambda i, j, name="a": {"a": i + j}[name])
