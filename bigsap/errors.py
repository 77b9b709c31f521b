"""The exceptions of BigSAP.

::

    BigsapError
    +-- InputError (also ValueError)     the call or its data is wrong
    |   +-- OptionError                  an option's value
    |   +-- CheckpointError              a checkpoint that this solve cannot continue
    |   +-- ShapeError                   a shape, or the shape of a returned row
    |   +-- DtypeError                   strings, objects, complex numbers, ...
    |   +-- ExpressionError              a cost expression: names the column of the text
    |   +-- KernelError                  CUDA C++ that does not compile: names its line
    |   +-- InvalidCostError             NaN or the wrong infinity: names row and column
    |   |   +-- OverflowRiskError        integer costs too large for exact sums
    |   +-- SourceError                  a source could not deliver a row
    |       +-- CallbackError            the user's function raised (chained)
    |       +-- StoreError               a file, store or provider is damaged, incomplete or missing
    +-- ClusterError (also ConnectionError)  the cluster of a solve is lost, or has no worker
    +-- DeviceMemoryError (also MemoryError) a device has too little memory: names the bytes
    +-- InfeasibleError (also ValueError)    no complete assignment exists
    +-- CertificateError (also ValueError)   a claim of a result is wrong

Outcomes (infeasible, time limit, cancelled) are *returned* by ``solve`` as a
``Status``; only ``linear_sum_assignment`` raises ``InfeasibleError``, as scipy does.
"""

from __future__ import annotations

import functools
import numbers
import operator
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import BoundArguments, signature
from typing import Any, ParamSpec, TypeVar

import numpy as np


class BigsapError(Exception):
    """Base class of all errors that BigSAP raises on purpose."""


class InputError(BigsapError, ValueError):
    """Raised if the call, or the data behind it, is wrong."""


class OptionError(InputError):
    """An option has a value outside its range."""


class CheckpointError(InputError):
    """A checkpoint is damaged, foreign, of another version, or of another problem."""


class ShapeError(InputError):
    """An array, or a row that a source returned, has the wrong shape."""


class DtypeError(InputError):
    """Costs of a kind that cannot be ordered or summed as real numbers."""


class ExpressionError(InputError):
    """A cost expression uses something that the expression language does not have.

    ``column`` is the position of the offending token in the expression's text, counted from 1; None
    if the error has no single position.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column


class KernelError(InputError):
    """CUDA C++ of a cost kernel does not compile.

    ``line`` is the first offending line, counted from 1; None if it is not in the user's code.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class DeviceMemoryError(BigsapError, MemoryError):
    """A device has too little free memory; ``nbytes`` is the size needed."""

    def __init__(self, message: str, nbytes: int) -> None:
        super().__init__(message)
        self.nbytes = nbytes


class ClusterError(BigsapError, ConnectionError):
    """The scheduler of a solve's cluster is lost, or the cluster has no worker.

    If a checkpoint was requested, ``resume`` can continue from it, with or without a cluster.
    """


class InvalidCostError(InputError):
    """A cost is NaN or the infinity that does not mean *forbidden*.

    ``row`` and ``column`` are the first offending pair; None if the error is about the costs as a
    whole.
    """

    #: Whether a source counted the pair, not a problem of copies of its rows and columns.
    of_source = False

    def __init__(self, message: str, row: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        self.column = column


class OverflowRiskError(InvalidCostError):
    """Costs so large, or with so many digits, that exact sums of them leave the numbers at hand."""


class SourceError(InputError):
    """A source could not deliver a row it promised."""


class CallbackError(SourceError):
    """The user's cost function raised; the original is ``__cause__``.

    ``row`` is the row, the first one of a block, or None.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class StoreError(SourceError):
    """A file, store or provider is truncated, corrupt, incomplete or missing.

    Unlike a plain ``SourceError``, reading again would fail in the same way.
    """


class InfeasibleError(BigsapError, ValueError):
    """No complete assignment avoids the forbidden pairs.

    ``violator`` is a set of rows whose allowed columns are too few (Hall).
    """

    def __init__(self, message: str, violator: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.violator = tuple(violator)


class CertificateError(BigsapError, ValueError):
    """A claim of a result is wrong; the message tells which."""


def whole(value: Any) -> int | None:
    """Return an option's value as a Python int; None if it is not an integer.

    Accepts Python's and numpy's integers, but not bool. For None the caller raises OptionError.
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def number(value: Any) -> int | float | None:
    """Return an option's value as a Python number, NaN or infinite included; None if there is none."""
    if isinstance(value, numbers.Integral):
        return whole(value)
    try:
        return float(value) if isinstance(value, numbers.Real) else None
    except OverflowError:
        return None


def bound_call(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> BoundArguments:
    """Return the arguments of ``function`` by name. Raises TypeError, as of a call of ``name``."""
    try:
        return signature(function).bind(*args, **options)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def one_of(value: Any, words: Sequence[str]) -> bool:
    """Return whether an option's value is one of some words; an array, which compares as many, is none."""
    return isinstance(value, str) and value in words


def flag(value: Any, name: str, what: str = "True or False") -> bool:
    """Return an option's value as a bool. Raises OptionError for what is neither true nor false, and text."""
    if isinstance(value, str):  # "false" would be true
        raise OptionError(f"{name} must be {what}, got {value!r}")
    try:
        return bool(value)
    except Exception as error:  # arrays of several values, NA
        raise OptionError(f"{name} must be {what}, got {value!r}") from error


def optional(module: str, user: str) -> Any:
    """Import a module of an optional package; ImportError names its user, and what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{user} needs {package}: pip install {package}") from error


def check_path(path: Any, name: str) -> None:
    """Raise OptionError for a path that no file can have."""
    text = os.fspath(path)
    if ("\0" if isinstance(text, str) else b"\0") in text:
        raise OptionError(f"{name} must be the path of a file, got {path!r}, which holds a null character")


# -- numpy's warnings ------------------------------------------------------------------

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def quiet(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Return the function with numpy's overflow warnings off: BigSAP raises its own errors.

    Underflow is no error here, whatever the caller has set.
    """

    @functools.wraps(function)
    def called(*args: _Given.args, **options: _Given.kwargs) -> _Found:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return function(*args, **options)

    return called


def quiet_thread() -> None:
    """Turn numpy's overflow warnings off for this thread: each thread starts with numpy's defaults."""
    np.seterr(over="ignore", invalid="ignore", under="ignore")


# -- warnings --------------------------------------------------------------------------


def level_of_caller() -> int:
    """Return the ``stacklevel``, for the calling function, of the first frame outside BigSAP."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "bigsap":
        level, frame = level + 1, frame.f_back
    return level
