"""A million random texts for the expression language: ``python tests/support/expression_fuzz.py``.

Texts come from a grammar, from grammar with a character or two wrong, from tokens in any order,
and from what people try who want out. Each is accepted or refused, nothing else: no other error,
nothing run, imported or opened, no second spent. What is accepted

* has C text made of the language's own words alone: none of the user's reaches a compiler;
* has, for two pairs, the value of ``expression_oracle`` (an interpreter of Python's own tree), and,
  where Python computes the same without raising, the value of Python's ``eval``;
* lies within its own range;
* and, one in --every, has the bits of its C text, one in 150 of these of the machine code.

The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import math
import multiprocessing
import operator
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.errors import ExpressionError
from contracts import read
from expression_oracle import ARRAYS, FUNCTIONS, GCC, M, N, by_c, by_python, c_function, value_of

EXACT = ("abs", "sqrt", "floor")
INEXACT = ("exp", "log", "sin", "cos", "atan2", "hypot")
NAMES = ARRAYS | {"n": N, "m": M, "inf": math.inf}
#: What the C text may be written with: its helpers, C's words and math.h, and names by number.
WORDS = re.compile(
    r"include|math|h|static|double|const|long|return|if|else|for|LL|HUGE_VAL|cost|bigsap_\w+|[abrqfijnm]"
    r"|fmod|copysign|floor|fabs|sqrt|exp|log|sin|cos|atan2|hypot|pow|[ijnm]_value|[tak]\d+(_value)?"
)
NUMBERS = re.compile(r"(?<![A-Za-z_])(\d+\.?\d*([eE][+-]?\d+)?(LL)?|\.\d+)")
SLOW_S = 1.0
#: An interpreter in Python takes a microsecond an operation.
MOST_OPERATIONS = 3000
BATCH = 150

# -- texts -----------------------------------------------------------------------------------

LEAVES = (
    "i",
    "j",
    "n",
    "m",
    "c",
    "w[i]",
    "v[j]",
    "x[i,0]",
    "x[i, 2]",
    "y[j,1]",
    "inf",
    "0",
    "1",
    "2",
    "3",
    "0.1",
    "1.5e3",
    "7",
    "1e-300",
    "1_0",
    ".5",
    "2.",
    "0x1F",
    "1e308",
)
TOKENS = (
    *"ijnmkxywvcDe()[]{},.:=+-*/%<>~^|&@! ",
    "**",
    "//",
    "==",
    "!=",
    "<=",
    ":=",
    " and ",
    " or ",
    " not ",
    " if ",
    " else ",
    "sum(",
    " for k in ",
    " range(",
    "range(D)",
    "abs(",
    "min(",
    "max(",
    "where(",
    "x[i,0]",
    "y[j,",
    "w[i]",
    "v[j]",
    "1",
    "0.5",
    "1e999",
    "1e-999",
    "0x",
    "lambda ",
    "__",
    "'",
    '"',
    "\n",
    "\t",
    "\\",
    "#",
    ";",
    "shape",
    "x.shape[1]",
    " is ",
    " in ",
    "*x",
    "**x",
    "\u00e9",
    "\u2028",
    "\x00",
    "f'",
    "b'",
    "1j",
    "...",
    "None",
    "True",
    "await ",
    "async ",
    "yield ",
    "import ",
    "print(",
    "9" * 30,
    "9" * 400,
)
POWERS = ("0.5", "1.7", "(-1)", "5", "(-3)", "(-0.5)", "0", "inf", "(-inf)", "v[j]", "x[i,1]")
HOSTILE = (
    "__import__('os').system('touch /tmp/escaped')",
    "().__class__.__bases__[0].__subclasses__()",
    "open('/etc/passwd').read()",
    "eval('1')",
    "exec('x=1')",
    "compile('1','','eval')",
    "(lambda: 0)()",
    "[k for k in range(3)]",
    "{k: k for k in x}",
    "x.__class__",
    "x.tofile('a')",
    "w.base",
    "(k := 3)",
    "globals()",
    "getattr(x, 'shape')",
    "f'{i}'",
    "x[i].real",
    "x[::1]",
    "x[i][0]",
    "w[-i]",
    "w[i+1]",
    "w[j]",
    "v[i]",
    "x[i, 3]",
    "x[i, -1]",
    "x[i, k]",
    "x[i, True]",
    "sum(k for k in range(10**9))",
    "sum(k for k in range(4097))",
    "10**10**10",
    "9**9**9**9",
    "sum(sum(1 for l in range(4096)) for k in range(4096))",
    "i if i",
    "abs(i, j)",
    "min(*w)",
    "max(i, j, key=abs)",
    "sum(w)",
    "sum([1])",
    "range(3)",
    "breakpoint()",
    "exit()",
    "i.i",
    "1 .real",
    "i;j",
    "i\nimport os",
    "'a' * 10",
    "b'a'[0]",
    "i @ j",
    "~i",
    "i << 2",
    "i | j",
    "i is j",
    "i in w",
    "await i",
    "yield",
    "*w",
    "i,",
    "x[i,0] = 1",
    "del i",
    "@i",
    "print(i)",
    "\\",
    "i#",
    "`i`",
    "$i",
)


class Writer:
    """Random texts of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def leaf(self, loops: tuple[str, ...]) -> str:
        pick = self.random.random()
        if loops and pick < 0.5:
            loop = self.random.choice(loops)
            return self.random.choice((f"x[i,{loop}]", f"y[j,{loop}]", loop))
        if pick > 0.97:
            return repr(self.random.uniform(-10, 10) * 10 ** self.random.randint(-12, 12))
        return self.random.choice(LEAVES)

    def tree(self, depth: int, loops: tuple[str, ...] = ()) -> str:
        """An expression that the language has."""
        choose, pick = self.random.choice, self.random.random()
        if depth <= 0 or pick < 0.12:
            return self.leaf(loops)

        def inner() -> str:
            return self.tree(depth - self.random.randint(1, 2), loops)

        if pick < 0.45:
            return f"({inner()} {choose(('+', '-', '*', '/', '//', '%'))} {inner()})"
        if pick < 0.52:
            return f"{inner()} {choose('+-*')} {inner()}"  # by precedence, without brackets
        if pick < 0.60:
            return f"({inner()} {choose(('<', '<=', '>', '>=', '==', '!='))} {inner()})"
        if pick < 0.63:
            return f"({inner()} < {inner()} != {inner()})"
        if pick < 0.69:
            return f"({inner()} {choose(('and', 'or'))} {inner()})"
        if pick < 0.74:
            return f"({inner()} if {inner()} else {inner()})"
        if pick < 0.77:
            return f"where({inner()}, {inner()}, {inner()})"
        if pick < 0.82:
            return f"({choose(('-', 'not ', '+', '- -'))}{inner()})"
        if pick < 0.86:
            return f"({inner()}) ** {choose('234')}"
        if pick < 0.91:
            return f"{choose(EXACT)}({inner()})"
        if pick < 0.95:
            return f"{choose(('min', 'max'))}({inner()}, {inner()})"
        name = choose([name for name in ("k", "l", "q2") if name not in loops] or ["zz"])
        size = choose(("3", "2", "x.shape[1]", "y.shape[1]", "1", "0"))
        return f"sum({self.tree(depth - 2, (*loops, name))} for {name} in range({size}))"

    def valid(self) -> str:
        text = self.tree(self.random.randint(1, 6))
        if self.random.random() < 0.1:
            function = self.random.choice(INEXACT)
            more = f", {self.tree(2)}" if function in ("atan2", "hypot") else ""
            return f"{function}({text}{more})"
        if self.random.random() < 0.05:
            return f"({text}) ** {self.random.choice(POWERS)}"
        return text

    def wrong(self) -> str:
        """A valid text with one to three characters inserted, lost, doubled or exchanged."""
        text = list(self.valid())
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(text) + 1)
            pick = self.random.random()
            if pick < 0.4:
                text.insert(at, self.random.choice(TOKENS))
            elif text and pick < 0.7:
                del text[min(at, len(text) - 1)]
            elif text:
                text[min(at, len(text) - 1)] = self.random.choice(TOKENS)
        return "".join(text)

    def soup(self) -> str:
        if self.random.random() < 0.1:
            return "".join(chr(self.random.randrange(1, 300)) for _ in range(self.random.randrange(30)))
        return "".join(self.random.choices(TOKENS, k=self.random.randrange(16)))

    def hostile(self) -> str:
        """Something nasty, alone or in the place of a leaf."""
        bad = self.random.choice(HOSTILE)
        if self.random.random() < 0.3:
            return bad
        text = self.valid()
        leaves = [at.span() for at in re.finditer(r"\b(?:[ijnmc]|\d+)\b", text)]
        start, end = self.random.choice(leaves) if leaves else (0, len(text))
        return text[:start] + bad + text[end:]

    def text(self) -> tuple[str, str]:
        """(kind, text)."""
        (kind,) = self.random.choices(("valid", "wrong", "soup", "hostile"), (45, 25, 20, 10))
        return kind, getattr(self, kind)()


# -- Python's own value ----------------------------------------------------------------------


class _Floats(ast.NodeTransformer):
    """Numbers as the language has them: floats."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Constant(float(node.value)), node)


class _Table:
    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape = values.shape

    def __getitem__(self, at: Any) -> float:
        at = at if isinstance(at, tuple) else (at,)
        return float(self.values[tuple(int(k) for k in at)])


class _Shape:
    """``x.shape[1]``, by a float."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __getitem__(self, at: float) -> int:
        return self.shape[int(at)]


def _table(values: Any) -> Any:
    table = _Table(values)
    table.shape = _Shape(values.shape)
    return table


def _libm(name: str) -> Callable[..., float]:
    return lambda *values: float(c_function(name, *(float(v) for v in values)))


OWN: dict[str, Any] = {
    "__builtins__": {},
    **{name: _table(ARRAYS[name]) for name in "xywv"},
    "c": float(ARRAYS["c"]),
    "n": float(N),
    "m": float(M),
    "inf": math.inf,
    **{name: _libm(name) for name in INEXACT},
    **FUNCTIONS,
    # From Python 3.12 on, sum() of floats is compensated.
    "sum": lambda terms: functools.reduce(operator.add, terms, 0.0),
    "range": lambda size: map(float, range(int(size))),
}


def own_value(tree: ast.Expression, i: int, j: int) -> float | None:
    """What ``eval`` gives; None where Python raises, or means something else on purpose."""
    parts = list(ast.walk(tree))
    # 'and' gives an operand, ** is pow in place of products, D is no name of Python's.
    if any(isinstance(p, (ast.BoolOp, ast.Pow)) or getattr(p, "id", "") == "D" for p in parts):
        return None
    code = compile(ast.fix_missing_locations(_Floats().visit(tree)), "<own>", "eval")
    try:
        return float(eval(code, OWN | {"i": float(i), "j": float(j)}))
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


# -- one text --------------------------------------------------------------------------------


class Watch:
    """Notes what a thread asks the interpreter to run or open while it is ``thread``.

    Other threads of the process, as of a cluster in another test, open files when they like.
    """

    events = ("exec", "import", "open", "os.system", "subprocess.Popen")
    thread = 0
    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.thread == threading.get_ident() and event in cls.events:
            cls.seen.append(f"{event} {arguments!r:.100}")


class Fuzz:
    """Counts, and what was found."""

    def __init__(self, seed: int, folder: Path, every: int) -> None:
        self.writer = Writer(seed)
        self.folder = folder
        self.every = every
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self.batch: list[str] = []
        self.slowest = 0.0

    def report(self, what: str, text: str) -> None:
        self.counts["found"] += 1
        if len(self.found) < 20:
            self.found.append(f"{what}: {text!r}")

    def one(self) -> None:
        kind, text = self.writer.text()
        self.counts[kind] += 1
        source = self.made(kind, text)
        if source is None:
            return
        self.counts["accepted"] += 1
        self.counts[f"accepted {kind}"] += 1
        try:
            self.check(source, text)
        except Exception as error:  # noqa: BLE001  (that is what is looked for)
            self.report(f"{type(error).__name__} {error}", text)

    def check(self, source: Any, text: str) -> None:
        self.check_words(source, text)
        if source.expression.operations > MOST_OPERATIONS:
            return
        self.check_value(source, text)
        if GCC and self.counts["accepted"] % self.every == 0 and _ulps(text) is not None:
            self.batch.append(text)
            if len(self.batch) == BATCH:
                self.compiled()

    def made(self, kind: str, text: str) -> Any:
        """The source; None where the text was refused."""
        clock = time.perf_counter()
        Watch.seen.clear()
        Watch.thread = threading.get_ident()
        try:
            return bigsap.expression(text, (N, M), **ARRAYS)
        except ExpressionError as error:
            if error.column is not None and not 1 <= error.column <= len(text) + 1:
                self.report(f"column {error.column}", text)
        except Exception as error:  # noqa: BLE001  (that is what is looked for)
            self.report(f"{type(error).__name__} {error}", text)
        finally:
            Watch.thread = 0
            seconds = time.perf_counter() - clock
            self.slowest = max(self.slowest, seconds)
            if seconds > SLOW_S:
                self.report(f"{seconds:.1f} s", text)
            if Watch.seen:
                self.report(f"ran {Watch.seen}", text)
        return None

    def check_words(self, source: Any, text: str) -> None:
        c = source.c_source()
        words = re.findall(r"[A-Za-z_]\w*", NUMBERS.sub(" ", c))
        bad = [word for word in words if not WORDS.fullmatch(word)]
        if bad or not c.isascii() or set(c) & set("'\"\\@$`"):
            self.report(f"C text has {bad}", text)

    def check_value(self, source: Any, text: str) -> None:
        tree = ast.parse(re.sub(r"[\t\r\n]", " ", text).strip(), mode="eval")
        random_ = self.writer.random
        i = np.array([random_.randrange(N) for _ in range(2)])
        j = np.array([random_.randrange(M) for _ in range(2)])
        got = source.sample(i, j)
        ulps = _ulps(text)
        low, high = source.cost_range()
        for k in range(2):
            want = value_of(tree.body, NAMES | {"i": int(i[k]), "j": int(j[k])})
            if ulps is not None:
                self.counts["values"] += 1
                if not near(float(got[k]), want, ulps):
                    self.report(f"{float(got[k])!r} in place of {want!r} at {i[k]}, {j[k]}", text)
                if not math.isnan(want) and not low <= want <= high:
                    self.report(f"{want!r} outside {low!r} to {high!r}", text)
        own = own_value(tree, int(i[1]), int(j[1])) if self.counts["accepted"] % 4 == 0 else None
        if own is not None:
            self.counts["by eval"] += 1
            if not near(own, want, 0) and own != want:
                self.report(f"oracle {want!r}, eval {own!r} at {i[1]}, {j[1]}", text)

    def compiled(self) -> None:
        """The whole matrix by C, and of a few by machine code."""
        texts, self.batch = self.batch, []
        sources = [bigsap.expression(text, (N, M), **ARRAYS) for text in texts]
        want = [by_python(re.sub(r"[\t\r\n]", " ", text).strip()) for text in texts]
        got = by_c([source.c_source() for source in sources], self.folder)
        for file in self.folder.glob("costs*"):
            file.unlink()
        for text, a, b in zip(texts, got, want, strict=True):
            self.counts["by C"] += 1
            self.compare("C", text, a, b)
        for k in range(0, len(texts), 150):
            self.counts["by numba"] += 1
            self.compare("numba", texts[k], read(sources[k], np.arange(N)), want[k])

    def compare(self, what: str, text: str, got: Any, want: Any) -> None:
        ulps = _ulps(text)
        for i, j in np.ndindex(N, M):
            if not near(float(got[i, j]), float(want[i, j]), ulps or 0):
                self.report(f"{what} {got[i, j]!r}, oracle {want[i, j]!r} at {i}, {j}", text)
                return


def _ulps(text: str) -> int | None:
    """Units in the last place that a value may be off: none of what IEEE 754 fixes, a few where
    one other function stands outermost, None where its error may grow."""
    tree = ast.parse(re.sub(r"[\t\r\n]", " ", text).strip(), mode="eval").body
    inexact = [e for e in ast.walk(tree) if _inexact(e)]
    if not inexact:
        return 0
    return 4 if inexact == [tree] else None


def _inexact(e: ast.AST) -> bool:
    match e:
        case ast.Call(func=ast.Name(name)):
            return name in INEXACT
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value)):
            return value not in (2, 3, 4)
        case ast.BinOp(op=ast.Pow()):
            return True
    return False


def near(got: float, want: float, ulps: int) -> bool:
    """The same bits, zeros' signs too; NaN is NaN; or within so many units."""
    if math.isnan(want) or math.isnan(got):
        return math.isnan(want) and math.isnan(got)
    if ulps == 0:
        return got == want and math.copysign(1.0, got) == math.copysign(1.0, want)
    return got == want or abs(got - want) <= ulps * math.ulp(want)


# -- all of them -----------------------------------------------------------------------------


def part(task: tuple[int, int, int, float]) -> tuple[Counter[str], list[str], float]:
    """So many texts of one seed, or as many as the time allows."""
    seed, texts, every, seconds = task
    sys.addaudithook(Watch.hook)
    bigsap.expression("i", (N, M), **ARRAYS)  # what is imported once is imported now
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(seed, Path(folder), every)
        for k in range(texts):
            fuzz.one()
            if k % 1000 == 0 and time.monotonic() > end:
                break
        if fuzz.batch:
            fuzz.compiled()
    return fuzz.counts, fuzz.found, fuzz.slowest


def tasks(args: argparse.Namespace) -> Iterator[tuple[int, int, int, float]]:
    size = min(20_000, -(-args.texts // args.processes))
    left, seed = args.texts, args.seed
    while left > 0:
        yield seed, min(size, left), args.every, args.seconds
        left, seed = left - size, seed + 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="another one gives other texts")
    parser.add_argument("--every", type=int, default=25, help="accepted texts a compiled one")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of each 20,000 texts")
    args = parser.parse_args(argv)
    clock = time.monotonic()
    counts: Counter[str] = Counter()
    found: list[str] = []
    slowest = 0.0
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for more, wrong, seconds in pool.imap_unordered(part, tasks(args)):
            counts += more
            found += wrong
            slowest = max(slowest, seconds)
            for text in wrong:
                print(f"FOUND {text}", flush=True)
    counts["texts"] = sum(counts[kind] for kind in ("valid", "wrong", "soup", "hostile"))
    print(json.dumps({**counts, "slowest_s": round(slowest, 3), "seconds": round(time.monotonic() - clock)}))
    return 1 if counts["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
