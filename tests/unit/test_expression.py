"""The expression language: what it accepts, what it refuses, and the source it makes."""

from __future__ import annotations

import ast
import json
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap.cli import main
from bigsap.errors import DtypeError, ExpressionError, InputError, ShapeError
from bigsap.sources.expression.source_text import read as read_text
from bigsap.sources.expression.syntax_tree import MAX_LENGTH
from contracts import N_COLUMNS, N_ROWS, SourceContract, read
from examples_of import examples

RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(N_ROWS, 3)), RNG.normal(size=(N_COLUMNS, 3))
W, V = RNG.normal(size=N_ROWS), RNG.normal(size=N_COLUMNS)
SHAPE = (N_ROWS, N_COLUMNS)
ARRAYS = {"x": X, "y": Y, "w": W, "v": V, "c": 2.5}


def make(code, shape=SHAPE, **arrays):
    return bigsap.expression(code, shape, **(arrays or ARRAYS))


def costs(code, shape=SHAPE, **arrays):
    return read(make(code, shape, **arrays), np.arange(shape[0]))


class TestExpression(SourceContract):
    code = "(w[i] - v[j])**2 + sum(abs(x[i,k] - y[j,k]) for k in range(D)) + c * abs(i - j)"

    def matrix(self):
        spread = sum(np.abs(X[:, None, k] - Y[None, :, k]) for k in range(3))
        steps = np.abs(np.arange(N_ROWS)[:, None] - np.arange(N_COLUMNS))
        return (W[:, None] - V) ** 2 + spread + 2.5 * steps

    def make(self, matrix):
        return make(self.code)

    def changed(self, matrix):
        y = Y.copy()
        y[-1, -1] += 1
        return make(self.code, **(ARRAYS | {"y": y}))


class TestTransposedExpression(TestExpression):
    def matrix(self):
        return np.ascontiguousarray(super().matrix().T)

    def make(self, matrix):
        return make(self.code).transposed()

    def changed(self, matrix):
        return super().changed(matrix).transposed()


# -- meaning ---------------------------------------------------------------------------

I, J = np.arange(4.0)[:, None], np.arange(4.0)[None, :]  # noqa: E741
MEANINGS = [
    ("7", np.full((4, 4), 7.0)),
    ("  i\n + j\t", I + J),
    ("n * 10 + m", np.full((4, 4), 44.0)),
    ("i / j", np.array([[np.nan, 0, 0, 0]] + [[np.inf, a, a / 2, a / 3] for a in (1.0, 2.0, 3.0)])),
    ("(i - 2) // 2", np.floor((I - 2) / 2) + 0 * J),
    ("(i - 2) % 3", np.mod(I - 2, 3) + 0 * J),
    ("-i ** 2", -(I**2) + 0 * J),
    ("2 ** -j", 2.0**-J + 0 * I),
    ("0 <= i < j", 1.0 * (I < J)),
    ("2 and 3", np.ones((4, 4))),
    ("0 or not i", 1.0 * (I == 0) + 0 * J),
    ("inf if i == j else 1e3", np.where(I == J, np.inf, 1e3)),
    ("where(i > j, i, -j)", np.where(I > J, I, -J)),
    ("min(i, j, 2) + max(i, j)", np.minimum(np.minimum(I, J), 2) + np.maximum(I, J)),
    ("hypot(i, j)", np.hypot(I, J)),
    ("sum(k * i for k in range(3))", 3 * I + 0 * J),
    ("sum(i for k in range(0))", 0 * I * J),
    ("sum(sum(k + l for k in range(2)) for l in range(2))", np.full((4, 4), 4.0)),
    ("1_000 + 0x10 + .5 + 2. + 1e-1", np.full((4, 4), 1018.6)),
    ("+i", I + 0 * J),
]


@pytest.mark.some(8)
@pytest.mark.parametrize(("code", "expected"), MEANINGS)
def test_meaning(code, expected):
    np.testing.assert_array_equal(costs(code, (4, 4), unused=1.0), expected)


def test_arrays_that_fit_both_sides():
    p = np.arange(12.0).reshape(4, 3)
    got = costs("p[i,0] - 100 * p[j,2]", (4, 4), p=p)
    np.testing.assert_array_equal(got, p[:, None, 0] - 100 * p[None, :, 2])


@pytest.mark.some(2)
@pytest.mark.parametrize("size", ["D", "3", "x.shape[1]", "three"])
def test_sizes_of_sums(size):
    got = costs(f"sum(x[i,q] for q in range({size}))", (2, 2), x=np.ones((2, 3)), three=3)
    np.testing.assert_array_equal(got, np.full((2, 2), 3.0))


def test_arrays_are_copied_and_converted():
    x = np.array([1, 2], np.int16)
    source = make("x[i]", (2, 1), x=x)
    x[:] = 9
    np.testing.assert_array_equal(read(source, [0, 1]), [[1], [2]])
    # Strided, byte-swapped and nested arrays alike.
    for values in (np.arange(4.0)[::2], np.array([0, 2], ">f4"), [False, 2], (0, 2.0)):
        np.testing.assert_array_equal(costs("x[i]", (2, 1), x=values), [[0], [2]])


@pytest.mark.slow
def test_the_longest_sums_and_limits_are_accepted():
    wide = np.ones((2, 4096))
    assert costs("sum(x[i,k] for k in range(4096))", (2, 2), x=wide)[0, 0] == 4096
    deep = "sum(sum(1 for l in range(256)) for k in range(256))"
    assert costs(deep, (1, 1))[0, 0] == 65536
    # Read in pieces, which must not be seen.
    source = make("sum(x[i,k] + j for k in range(4096))", (3, 50_000), x=np.ones((3, 4096)))
    got = read(source, [2, 0, 2], 100, 200)
    np.testing.assert_array_equal(got, np.tile(4096.0 * (1 + np.arange(100, 200)), (3, 1)))
    chain = "+".join(["i"] * 31)
    assert costs(chain, (3, 1))[2, 0] == 62
    sums = ", ".join(["sum(k + j for k in range(2))"] * 16)
    assert costs(f"max({sums})", (1, 4))[0, 3] == 7
    # Hundreds of operations compile in seconds, not minutes.
    assert costs(" and ".join(["i"] * 200), (2, 1)).tolist() == [[0], [1]]
    assert make("max(" + ",".join(["j"] * 499) + ")").c_source().count("bigsap_max(") == 499
    assert costs(("i" + " " * MAX_LENGTH)[:MAX_LENGTH], (2, 1)).tolist() == [[0], [1]]


def test_empty_shapes():
    for shape in ((0, 0), (0, 3), (3, 0)):
        source = make("i + j", shape)
        assert read(source, np.arange(shape[0])).shape == shape
        assert source.transposed().shape == shape[::-1]


# -- refusals --------------------------------------------------------------------------

#: Text, the column to blame (from 1), a part of the message.
REFUSED = [
    ("", 1, "empty"),
    ("i +", 4, "invalid syntax"),
    ("i)", 2, "unmatched"),
    ("i + zz", 5, "unknown name 'zz'; declared are x, y, w, v, c"),
    ("i.__class__", 3, "attribute access"),
    ("().__class__.__bases__[0]", 14, "attribute access"),
    ("lambda: 0", 1, "lambda"),
    ("[k for k in range(3)]", 1, "a list"),
    ("(k for k in range(3))", 1, "only in sum"),
    ("sum(k for k in w)", 16, "sum must be written"),
    ("sum(k for k in range(1, 3))", 16, "range takes 1"),
    ("sum(k for k in range(3) if k)", 28, "no 'if' in a sum"),
    ("sum(k for k in range(3) for l in range(3))", 29, "one 'for' a sum"),
    ("sum(i for i in range(3))", 11, "'i' cannot be the index"),
    ("sum(sum(k for k in range(2)) for k in range(2))", 15, "'k' cannot be the index"),
    ("sum(1 for k in range(4097))", 22, "at most 4096"),
    ("sum(1 for k in range(n))", 22, "the number of terms"),
    ("sum(sum(1 for l in range(4096)) for k in range(17))", 5, "sums within sums"),
    ("sum(x[i,k] for k in range(4))", 9, "k runs up to 3, but x has width 3"),
    ("'a'", 1, "strings"),
    ("(i := 3)", 2, "assignment"),
    ("i = 3", 3, "invalid syntax"),
    ("i; j", 2, "unexpected ';'"),
    ("i \\\n + j", 3, "unexpected"),
    ("\u03b1 + 1", 1, "ASCII"),
    ("max(*w)", 5, "star"),
    ("max(i, j, key=abs)", 11, "keyword"),
    ("abs(i, j)", 1, "abs takes 1 argument(s), got 2"),
    ("min(i)", 1, "at least 2"),
    ("range(3)", 1, "range is no function"),
    ("eval(i)", 1, "eval is no function"),
    ("__import__(os)", 1, "__import__ is no function"),
    ("sin(cos)(i)", 1, "only the functions"),
    ("w", 1, "w is an array"),
    ("w[0]", 3, "must be i or j"),
    ("w[j]", 3, "j counts 9 columns, but w has 13 entries"),
    ("w[i, 0]", 1, "takes 1 subscript"),
    ("x[i]", 1, "takes 2 subscript"),
    ("x[i][0]", 1, "one pair of brackets"),
    ("x[i, 3]", 6, "out of range"),
    ("x[i, k]", 6, "the second subscript"),
    ("c[i]", 1, "c is no array"),
    ("(w + w)[i]", 2, "only a declared array"),
    ("i @ j", 3, "this operator"),
    ("~i", 1, "~"),
    ("i is j", 3, "this comparison"),
    ("True", 1, "True is not a number"),
    ("1j", 1, "not a number"),
    # What is missing is missing at the end.
    ("i if j", 7, "expected 'else'"),
    ("1.2.3", 4, "invalid syntax"),
    ("i, j", 1, "a tuple"),
    ("9" * 400, 1, "too large"),
    ("+".join(["i"] * 300), None, "too long"),
    ("-" * 31 + "(i+j+i+j)", 33, "nested too deeply"),
    ("+".join(["sum(k for k in range(2))"] * 17), 401, "at most 16 sums"),
    ("-" * 32 + "i", 33, "nested too deeply"),
]


@pytest.mark.parametrize(("code", "column", "message"), REFUSED)
def test_refused_with_its_column(code, column, message):
    with pytest.raises(ExpressionError) as caught:
        make(code)
    text = str(caught.value)
    assert message in text
    if column is not None:
        assert caught.value.column == column
    lines = text.split("\n")
    if len(lines) == 3:  # the caret stands under the token
        assert f"column {caught.value.column}:" in lines[0]
        at = lines[2].index("^")
        assert len(lines[1]) <= 100
        token = code[caught.value.column - 1 : caught.value.column]
        if token and token.isprintable():
            assert lines[1][at : at + 1] == token


HUGE = ["(", "-", "not ", "[", "abs(", "2**", "i if i else ", "i<", "9", "x[", "i and ", "~", "1,"]


@pytest.mark.parametrize("part", HUGE)
@pytest.mark.parametrize("size", [MAX_LENGTH, 100_000])
def test_monsters_are_refused_cleanly(part, size):
    code = (part * size)[: size - 1] + "i"
    with pytest.raises(ExpressionError):
        make(code)
    # On a thread's stack too.
    caught = []

    def attempt():
        try:
            make(code)
        except ExpressionError as error:
            caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert len(caught) == 1


TOKENS = [
    *"ijnmkxywvc()[],.:=+-*/%<>",
    "**",
    "//",
    "==",
    " and ",
    " or ",
    " not ",
    " if ",
    " else ",
    "sum(",
    " for k in ",
    "range(",
    "abs(",
    "min(",
    "x[i,0]",
    "y[j,",
    "w[i]",
    "1",
    "0.5",
    "1e999",
    "lambda ",
    "__",
    "'",
    "\n",
    "shape",
    "D",
    " is ",
    " in ",
    "*x",
    "é",
    "{",
    "\\",
]


class Watch:
    """Notes what the interpreter is asked to run or open; audit hooks cannot be removed."""

    on = False
    seen: list = []  # noqa: RUF012

    @classmethod
    def hook(cls, event, args):
        if cls.on and event in ("exec", "import", "open", "os.system", "subprocess.Popen"):
            cls.seen.append((event, args))


@pytest.fixture(scope="module")
def watch():
    sys.addaudithook(Watch.hook)
    return Watch


@given(st.lists(st.sampled_from(TOKENS), max_size=14).map("".join))
@examples(600)
def test_any_text_is_accepted_or_refused_and_nothing_runs(watch, code):
    make("i")
    watch.seen.clear()
    watch.on = True
    try:
        make(code)
    except ExpressionError:
        pass
    finally:
        watch.on = False
    assert watch.seen == []


@pytest.mark.parametrize("code", [None, 3, b"i", ["i"], lambda i, j: 0])
def test_code_must_be_text(code):
    with pytest.raises(ExpressionError, match="must be a string"):
        make(code)


@pytest.mark.parametrize("name", ["i", "n", "sin", "sum", "range", "inf", "__x", "a-b", "", "if", "é"])
def test_names_of_arrays(name):
    with pytest.raises(ExpressionError, match=r"name of an array|has a meaning"):
        make("1", (2, 2), **{name: [1, 2]})


def test_arrays_are_judged():
    with pytest.raises(ExpressionError, match="9 arrays are declared; at most 8"):
        make("1", (2, 2), **{f"a{k}": k for k in range(9)})
    with pytest.raises(ShapeError, match="x has 3 dimensions"):
        make("1", (2, 2), x=np.zeros((2, 2, 2)))
    with pytest.raises(ShapeError, match="x is no rectangular array"):
        make("1", (2, 2), x=[[1], [1, 2]])
    for values in (["a"], [1j], np.array([None])):
        with pytest.raises(DtypeError, match="x "):
            make("1", (2, 2), x=values)
    for shape in ((2,), (2, -1), "ab", None):
        with pytest.raises(InputError):
            make("1", shape, x=1)


# -- the source ------------------------------------------------------------------------


def test_fingerprint_is_of_the_meaning():
    base = make("w[i] - v[j]").fingerprint()
    assert make(" ( w[i])-v[j] ").fingerprint() == base
    assert make("w[i] + v[j]").fingerprint() != base
    assert make("w[i] - v[j]").transposed().fingerprint() != base
    assert make("w[i] - v[j]", **(ARRAYS | {"c": 3})).fingerprint() != base


def test_generated_text_holds_nothing_of_the_users():
    source = make(
        "evil[i] + sum(evil2[i,also] for also in range(2))", (2, 2), evil=[1, 2], evil2=np.ones((2, 2))
    )
    for text in (source.c_source(), source.cuda_source()):
        assert "evil" not in text
        assert "also" not in text
    assert "__device__ double cost(long long i, long long j" in source.cuda_source()
    assert "#include" not in source.cuda_source()


def test_equal_formulas_are_compiled_once():
    one, two = make("w[i] * 3.25"), make("q[i] * 3.25", (2, 5), q=[1, 2])
    assert one.fill().address != two.fill().address  # another place among the declared
    three = make("q[i] * 3.25", (3, 4), q=[4, 5, 6])
    assert three.fill().address == two.fill().address
    np.testing.assert_array_equal(read(three, [2]), np.full((1, 4), 19.5))
    np.testing.assert_array_equal(read(two, [1]), np.full((1, 5), 6.5))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "code", ["min(w[i], v[j])", "max(v[j], w[i])", "w[i] ** 3 - v[j] ** 4", "(w[i] - 0.1) ** 2"]
)
def test_samples_have_the_bits_of_what_is_compiled(code):
    arrays = {"w": [0.0, -0.0, 1.1, np.nan], "v": [-0.0, 0.0, 0.3]}
    source = make(code, (4, 3), **arrays)
    i, j = (at.ravel() for at in np.indices((4, 3)))
    sampled = source.sample(i, j).reshape(4, 3)
    np.testing.assert_array_equal(source.transposed().sample(j, i), sampled.ravel())
    compiled = costs(code, (4, 3), **arrays)
    np.testing.assert_array_equal(sampled, compiled)
    known = ~np.isnan(compiled)
    np.testing.assert_array_equal(np.signbit(sampled[known]), np.signbit(compiled[known]))


def test_solve_equals_numpy():
    n = 60
    rng = np.random.default_rng(0)
    x, y = rng.random((n, 2)), rng.random((n, 2))
    steps = np.arange(n)
    matrix = np.sqrt(((x[:, None] - y) ** 2).sum(axis=2)) + 0.01 * np.abs(steps[:, None] - steps)
    matrix[np.abs(steps[:, None] - steps) > 40] = np.inf
    code = "inf if abs(i-j) > 40 else sqrt(sum((x[i,k]-y[j,k])**2 for k in range(2))) + 0.01*abs(i-j)"
    source = bigsap.expression(code, (n, n), x=x, y=y)
    for maximize in (False, True):
        dense = np.where(np.isinf(matrix), -np.inf, matrix) if maximize else matrix
        res = bigsap.solve(
            bigsap.expression(code.replace("inf", "-inf"), (n, n), x=x, y=y) if maximize else source,
            maximize=maximize,
        )
        rows, columns = bigsap.linear_sum_assignment(dense, maximize)
        assert res.success
        assert res.fun == pytest.approx(dense[rows, columns].sum(), rel=1e-12)
        res.verify(dense)


def test_command_line(tmp_path, capsys):
    spec = {
        "type": "expression",
        "code": "abs(x[i]-y[j])",
        "shape": [3, 3],
        "arrays": {"x": [1, 5, 9], "y": [8, 2, 5]},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main(["solve", str(tmp_path / "spec.json"), "--json"]) == 0
    assert '"fun": 2.0' in capsys.readouterr().out


class _Interrupting:
    """Garbage in a cycle that lets other threads run when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_a_parser_that_another_thread_disturbs_reads_again(monkeypatch):
    parse, disturbed = ast.parse, [3, 1, 0]

    def disturbing(*args, **kwargs):
        if disturbed[-1]:
            disturbed[-1] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=318, after=53)")
        return parse(*args, **kwargs)

    monkeypatch.setattr(ast, "parse", disturbing)
    while disturbed:
        assert ast.unparse(read_text("i + j")[0]) == "i + j"
        disturbed.pop()
    disturbed.append(10**9)
    with pytest.raises(SystemError):
        read_text("i + j")


@pytest.mark.slow
def test_threads_may_parse_at_the_same_time():
    # CPython 3.11.7 alone raised SystemError within a second.
    code = "+".join(f"min(i, j * {k})" for k in range(100))
    failed, end = [], time.monotonic() + 3

    def parse():
        while time.monotonic() < end and not failed:
            _Interrupting()
            try:
                read_text(code)
            except Exception as error:  # noqa: BLE001 - told by the main thread
                failed.append(error)

    threads = [threading.Thread(target=parse) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
