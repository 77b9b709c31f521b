"""The data of a compiled cost function: its arguments, and captured values.

Arguments are passed in the context block. Captured arrays are linked by address, because numba
would freeze a copy of small ones; captured helpers are compiled too.
"""

from __future__ import annotations

import math
import types as python_types
from typing import Any

import numba
import numpy as np
from numba.np import numpy_support

from bigsap.sources import compiled
from bigsap.sources.functions.whole import Checked
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
types: Any = numba.types
njit: Any = numba.njit

#: Checks instead of crashes and wrong integers; floating-point sums are not reordered.
FLAGS = {"boundscheck": True, "error_model": "python", "nogil": True, "pipeline_class": Checked}


class UntranslatableError(Exception):
    """Raised with the reason why a function must be called from Python."""


class Arguments:
    """Data of a function, laid out in a context block after ``first_word`` words.

    ``add`` returns the expression that rebuilds an argument in generated code; ``types`` has one
    numba type for each expression.
    """

    def __init__(self, first_word: int) -> None:
        self._first = first_word
        self.words: list[int | float | Array] = []
        self.types: list[Any] = []
        self.keep: list[Any] = []
        self.names: dict[str, Any] = {}

    def add(self, value: Any) -> str:
        expression, kind = self._place(value)
        self.types.append(kind)
        return expression

    def _word(self, value: int | float | Array) -> int:
        self.words.append(value)
        return self._first + len(self.words) - 1

    def _place(self, value: Any) -> tuple[str, Any]:
        if isinstance(value, (bool, np.bool_)):
            return f"words[{self._word(int(value))}] != 0", types.boolean
        if isinstance(value, (int, np.integer)) and -(2**63) <= value < 2**63:
            kind = numba.typeof(value) if isinstance(value, np.generic) else types.int64
            return f"types.{kind}(words[{self._word(int(value))}])", kind
        if isinstance(value, (float, np.float32)):
            kind = types.float32 if isinstance(value, np.float32) else types.float64
            return f"types.{kind}(floats[{self._word(float(value))}])", kind
        if type(value) is tuple and value:
            parts = [self._place(item) for item in value]
            text = ", ".join(text for text, _ in parts)
            return f"({text},)", types.Tuple([kind for _, kind in parts])
        if type(value) in (np.ndarray, np.memmap):
            return self._place_array(value)
        raise UntranslatableError(f"args holds a {type(value).__name__}, which numba cannot take")

    def _place_array(self, array: Array) -> tuple[str, Any]:
        plain = array.view(np.ndarray)
        supported = plain.dtype.kind in "biufc" and plain.dtype.isnative and plain.flags.aligned
        if not supported or plain.ndim == 0 or plain.dtype.itemsize > 16:
            raise UntranslatableError(f"args holds an array of dtype {plain.dtype}, shape {plain.shape}")
        item = numpy_support.from_dtype(plain.dtype)
        self.keep.append(array)
        name = f"pointer_{item}"
        self.names[name] = compiled.pointer_to(item)
        # Pass address, shape and strides, not ``plain``: a strided array must not be copied.
        pointer = f"{name}(words[{self._word(plain.ctypes.data)}])"
        shape = ", ".join(f"words[{self._word(size)}]" for size in plain.shape) + ","
        layout = "C" if plain.flags.c_contiguous else "F" if plain.flags.f_contiguous else "A"
        kind = types.Array(item, plain.ndim, layout)
        if layout == "C":
            return f"carray({pointer}, ({shape}))", kind
        if layout == "F":
            return f"farray({pointer}, ({shape}))", kind
        strides = ", ".join(f"words[{self._word(step)}]" for step in plain.strides) + ","
        ones = "1, " * plain.ndim
        return f"as_strided(carray({pointer}, ({ones})), ({shape}), ({strides}))", kind


class _LinkedArray(np.ndarray):
    """A captured array that numba links by address instead of freezing its content.

    numba does so by itself beyond a megabyte; this array always claims to be larger.
    """

    @property
    def nbytes(self) -> int:
        return 1 << 62


class Linker:
    """Compiles a function's captured helpers with it and links captured arrays.

    uses_math: whether the function calls Python's math module, which raises OverflowError for
    results that compiled code gives as infinity.
    """

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self.uses_math = False

    def link(self, function: Any) -> Any:
        """Return ``function`` as a new dispatcher."""
        if id(function) in self._done:
            return self._done[id(function)]
        scope = dict(function.__globals__)
        closure = tuple(python_types.CellType() for _ in function.__closure__ or ())
        copy = python_types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, closure
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__module__ = function.__module__
        copy.__qualname__ = function.__qualname__
        dispatcher = self._done[id(function)] = njit(**FLAGS)(copy)
        for name in _global_names(function.__code__):
            if name in scope:
                scope[name] = self._captured(scope[name])
        for cell, old in zip(closure, function.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self._captured(old.cell_contents)
            except ValueError:
                raise UntranslatableError("it captures a variable without a value") from None
        return dispatcher

    def _captured(self, value: Any) -> Any:
        if isinstance(value, np.ma.MaskedArray) or type(value) is np.matrix:
            raise UntranslatableError(f"it captures a {type(value).__name__}")
        if value is math or getattr(value, "__module__", None) == "math":
            self.uses_math = True
        if isinstance(value, np.ndarray):
            return value.view(_LinkedArray)
        if type(value) is tuple:
            return tuple(self._captured(item) for item in value)
        if isinstance(value, numba.core.dispatcher.Dispatcher):
            # Compiled again: the user's version may lack index checks.
            value = value.py_func
        if isinstance(value, python_types.FunctionType) and not _is_known(value):
            return self.link(value)
        return value


def _global_names(code: Any) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            names |= _global_names(constant)
    return names


def _is_known(function: Any) -> bool:
    """Return whether numba has its own version of a library's function."""
    module = function.__module__ or ""
    return module.partition(".")[0] in ("numpy", "numba", "math", "builtins")
