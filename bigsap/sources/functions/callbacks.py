"""Costs from a user's function: compiled if possible, else called from Python."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsap import policy
from bigsap.errors import OptionError
from bigsap.notebook import Shown
from bigsap.sources.base import CostSource, Fill, Waiting
from bigsap.sources.convert import check_rows, cost_shape
from bigsap.sources.functions.called import multiplies_matrices
from bigsap.sources.functions.carried import carried, filled, state_of
from bigsap.sources.functions.probing import KINDS, declared_dtype, infer_kind, name_of, refuse_masked
from bigsap.sources.functions.python_calls import PythonCalls
from bigsap.sources.functions.speed import note_speed
from bigsap.types import Array, Ids

if TYPE_CHECKING:
    from bigsap.sources.functions.translation import Translation


def from_function(
    f: Callable[..., Any],
    shape: Any,
    args: tuple[Any, ...] = (),
    kind: str | None = None,
    dtype: Any = None,
    *,
    compiled: bool | None = None,
) -> FunctionSource:
    """Return costs that a function computes on demand.

    shape: (n_rows, n_columns). args: further arguments of ``f``, after the ids.
    kind: how ``f`` is called; None: inferred from its number of parameters and a probe call
    on row 0:

    ========= ================================== =======================================
    "value"   ``f(i, j, *args)``                 -> the cost, one real number
    "row"     ``f(i, *args)``                    -> all costs of row i, (n_columns,)
    "part"    ``f(i, start, stop, *args)``       -> its columns start to stop - 1
    "block"   ``f(rows, out, *args)``            writes row rows[k] to out[k, :]; rows int64
                                                 (k,), out (k, n_columns), NaN before
    ========= ================================== =======================================

    dtype: one of ``SCANNABLE``. None: that of the array returned for row 0, and
    float64 for values, lists and blocks (a later value may be a fraction even if the first
    ones are integers). Costs that the dtype cannot hold are errors; floats may round.

    ``f`` must return the same costs at every call, in any order and from any thread.
    Pass its data in ``args``: numbers, numpy arrays, tuples of them.
    Arrays, captured ones included, are never copied: a change in place takes effect.
    Masked arrays must not hold masked values; a masked value, None or NA that ``f`` returns, or
    writes to ``out``, is an error.
    Captured numbers are read once, when ``f`` is compiled.

    compiled: None compiles ``f`` with numba if that succeeds and the results agree with Python's
    on sampled pairs, but not below 16,384 pairs; otherwise ``f`` is called from Python (with
    one ``PerformanceWarning`` if that is a call for each pair). A block function that multiplies
    matrices stays in Python: numpy's library does the work, for up to 256 rows a call, on one thread
    for each of the solve's. True requires compilation
    (OptionError with the reason if it fails), False never compiles. Compiled code checks indices,
    divisions and integers as Python does. Pairs that it cannot compute (an exception, a NaN, a
    row of another length, an integer that leaves 64 bits, or numpy's width of small ones, a
    number that ``dtype`` cannot hold) are computed again in Python, whose result counts; if that
    would be most pairs, nothing is compiled. Rounding may differ from Python's in the last
    digits. Helpers that ``f`` calls are compiled too.

    A lambda that returns one value, lies inside the language of ``bigsap.expression`` (arithmetic
    on ``i``, ``j``, numbers and float64 arrays by ``x[i]``, ``x[j, k]``, conditions, sums,
    functions of ``math`` and numpy) and has float64 costs is compiled as an expression;
    numba compiles all other functions. The same rule holds: if Python would raise, leave the
    real numbers, or hold an integer beyond 2**53, the pair is computed in Python.
    ``evaluated_by`` of the source, and of ``Result.stats``, records how costs were computed.

    Raises, here or when a row is read: CallbackError (``f`` raised; names row and column,
    chained), ShapeError, DtypeError, OptionError, InvalidCostError. A KeyboardInterrupt
    is passed on. Compiling takes 0.1 to some seconds; a compiled value takes about a
    nanosecond plus its arithmetic, one called from Python 100 to 300.
    """
    if not callable(f):
        raise OptionError(f"a cost function must be callable, got {type(f).__name__}")
    if not isinstance(args, (tuple, list)):
        raise OptionError(f"args must be a tuple of arguments, got {type(args).__name__}")
    if kind is not None and kind not in KINDS:
        raise OptionError(f"kind={kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if compiled not in (None, True, False):
        raise OptionError(f"compiled must be None, True or False, got {compiled!r}")
    sizes = cost_shape(shape, "shape=")
    target = None if dtype is None else declared_dtype(dtype)
    args = tuple(args)
    refuse_masked(args)
    found = infer_kind(f, args, sizes) if kind is None else kind
    source = FunctionSource(f, sizes, args, found, target, compiled=compiled)
    source.probe(inferred=kind is None)
    if compiled:
        source.translation()
    return source


class FunctionSource(PythonCalls, Shown):
    """Costs computed by a user's function. See ``from_function``.

    function, args, kind: as given or inferred. swapped: this is the transpose, and the function's
    arguments are exchanged; messages name them in the function's own order.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shape: tuple[int, int],
        args: tuple[Any, ...],
        kind: str,
        dtype: np.dtype[Any] | None,
        *,
        compiled: bool | None = None,
        swapped: bool = False,
    ) -> None:
        self.function = function
        self.shape = shape
        self.args = args
        self.kind = kind
        self.swapped = swapped
        self.dtype: np.dtype[Any] = np.dtype(np.float64) if dtype is None else dtype
        self._declared = dtype is not None
        self._compiled = compiled
        self._decided = compiled is False
        # The function that Python calls: the given one, or the Python original of a compiled one.
        self._python = function
        self._begin()

    def _begin(self) -> None:
        """Set the fields that are not shared or pickled (``carried.LOCAL``)."""
        self._translation: Translation | None = None
        self._lock = threading.Lock()
        self._waiting = Waiting()
        self._failed = threading.local()
        self._interrupt = None

    def __reduce__(self) -> tuple[Any, ...]:
        return function_again, carried(self)

    def __copy__(self) -> FunctionSource:
        state = state_of(self)
        del state["_expected"]
        other = _empty()
        vars(other).update(state, _python=self.function)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionSource:
        other = copy.copy(self)
        other.args = copy.deepcopy(self.args, memo)
        other.function = other._python = copy.deepcopy(self.function, memo)
        return other

    def __repr__(self) -> str:
        n, m = self.shape
        name, by = name_of(self.function), self.evaluated_by
        return (
            f"from_function({name}, {n} x {m}, kind={self.kind!r}, dtype={self.dtype}"
            f"{f', evaluated by {by}' if by else ''})"
        )

    @property
    def evaluated_by(self) -> str | None:
        """Way of computing the costs: ``"expression"``, ``"numba"`` or ``"python"``.

        None until that is decided, when the first row is read.
        """
        if not self._decided:
            return None
        if self._translation is None:
            return "python"
        return "numba" if self._translation.expression is None else "expression"

    @property
    def formula(self) -> CostSource | None:
        """The formula as which the function was compiled, None if it was not."""
        return None if self._translation is None else self._translation.expression

    # -- reading ------------------------------------------------------------------------

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        check_rows(rows, self.shape[0])
        start, stop = columns.start, columns.stop
        if len(rows) == 0 or start >= stop:
            return
        translation = self.translation()
        if translation is None:
            self._call_rows(rows, start, stop, out)
            return
        from bigsap.sources.compiled import read_by_fill

        self._failed.error = None
        by_row = self.kind in ("row", "block")
        read_by_fill(translation.fill, self.shape, rows, columns, out, by_row=by_row, look=self._waiting.look)
        interrupt, self._interrupt = self._interrupt, None
        error, self._failed.error = self._failed.error, None
        if interrupt is not None:
            raise interrupt
        if error is not None:
            raise error

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called between rows, and within long rows of single values.

        It applies to reads of this thread.
        """
        self._waiting.check = check

    def fill(self) -> Fill | None:
        """Return the compiled filler, None if there is none.

        If ``f`` raises it writes NaN, and ``read`` of that row raises the error. Integers have no
        NaN: they are computed by ``read`` alone, which uses the compiled code too.
        """
        if self.dtype.kind != "f" or 0 in self.shape:
            return None
        translation = self.translation()
        return None if translation is None else translation.fill

    def transposed(self) -> FunctionSource | None:
        """Return the same function with its two ids exchanged; None unless it returns values."""
        if self.kind != "value":
            return None
        return FunctionSource(
            self.function,
            self.shape[::-1],
            self.args,
            self.kind,
            self.dtype,
            compiled=self._compiled,
            swapped=not self.swapped,
        )

    # -- compiling --------------------------------------------------------------------

    def translation(self) -> Translation | None:
        """Return the compiled function, compiled at first use; None if called from Python."""
        if self._decided:
            return self._translation
        with self._lock:
            if not self._decided:
                self._translation = self._translate()
                self._decided = True
        return self._translation

    def _translate(self) -> Translation | None:
        n, m = self.shape
        if 0 in self.shape or (self._compiled is None and n * m < policy.COMPILED_PAIRS):
            return None
        if self._compiled is None and self.kind == "block" and multiplies_matrices(self.function):
            return None
        from bigsap.sources.functions.linking import UntranslatableError
        from bigsap.sources.functions.translation import translate

        # A function that the user compiled may lack the checks of the plain one.
        self._python = getattr(self.function, "py_func", self.function)
        try:
            return translate(self)
        except UntranslatableError as error:
            self._python = self.function
            if self._compiled:
                raise OptionError(
                    f"compiled=True, but {name_of(self.function)} cannot be compiled: {error}"
                ) from error
            note_speed(self.function, self.kind, str(error))
            return None


def _empty() -> FunctionSource:
    source: FunctionSource = object.__new__(FunctionSource)
    source._begin()
    return source


def function_again(state: dict[str, Any], text: tuple[str, list[str]] | None) -> FunctionSource:
    """Return the source of a pickle: see ``carried``."""
    found: FunctionSource = filled(_empty(), state, text)
    return found
