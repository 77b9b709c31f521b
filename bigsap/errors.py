"""What BigSAP raises.

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
    |   +-- SourceError                  a source could not give a row
    |       +-- CallbackError            the user's function raised (chained)
    |       +-- StoreError               a file, store or provider is damaged, incomplete, not there
    +-- ClusterError (also ConnectionError)  the cluster of a solve is lost, or has no worker
    +-- DeviceMemoryError (also MemoryError) a device has too little memory: names the bytes
    +-- InfeasibleError (also ValueError)    no complete assignment exists
    +-- CertificateError (also ValueError)   a result is not what it claims

Outcomes (infeasible, time limit, cancelled) are *returned* by ``solve`` as a
``Status``; only ``linear_sum_assignment`` raises ``InfeasibleError``, as scipy does.
"""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np


class BigsapError(Exception):
    """Base of everything BigSAP raises on purpose."""


class InputError(BigsapError, ValueError):
    """The call, or the data behind it, is wrong."""


class OptionError(InputError):
    """An option has a value outside its range."""


class CheckpointError(InputError):
    """A checkpoint is damaged, foreign, of another version, or of another problem."""


class ShapeError(InputError):
    """An array, or a row that a source returned, has the wrong shape."""


class DtypeError(InputError):
    """Costs of a kind that cannot be ordered or summed as real numbers."""


class ExpressionError(InputError):
    """A cost expression holds something that the expression language has not.

    ``column`` is the place of the offending token in the expression's text, counted
    from 1; None when the complaint is not about one place.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column


class KernelError(InputError):
    """CUDA C++ of a cost kernel does not compile.

    ``line`` is the first offending line, counted from 1; None when it is not the user's.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class DeviceMemoryError(BigsapError, MemoryError):
    """A device has too little free memory; ``nbytes`` were needed."""

    def __init__(self, message: str, nbytes: int) -> None:
        super().__init__(message)
        self.nbytes = nbytes


class ClusterError(BigsapError, ConnectionError):
    """The scheduler of a solve's cluster is lost, or the cluster has no worker.

    Where a checkpoint was asked for it holds what was done: ``resume`` goes on from it, with a
    cluster or without.
    """


class InvalidCostError(InputError):
    """A cost is NaN or the infinity that does not mean *forbidden*.

    ``row`` and ``column`` name the first offending pair, or are None when the
    complaint is about the costs as a whole.
    """

    def __init__(self, message: str, row: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        self.column = column


class OverflowRiskError(InvalidCostError):
    """Integer costs so large that their sums could leave int64."""


class SourceError(InputError):
    """A source could not deliver a row it promised."""


class CallbackError(SourceError):
    """The user's cost function raised; the original is ``__cause__``."""


class StoreError(SourceError):
    """A file, store or provider is truncated, corrupt, incomplete or not there.

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
    """A result is not what it claims: the message says in which respect."""


def whole(value: Any) -> int | None:
    """The integer that an option gives, Python's or numpy's, as Python's own; None for anything
    else, bool included: an OptionError is due."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def number(value: Any) -> int | float | None:
    """The same of a real number, which may be NaN or infinite."""
    if isinstance(value, numbers.Integral):
        return whole(value)
    return float(value) if isinstance(value, numbers.Real) else None


# -- what numpy would say ---------------------------------------------------------------

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def quiet(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """The same function, in which numpy does not warn of numbers that overflow: errors tell what
    matters of it."""

    @functools.wraps(function)
    def called(*args: _Given.args, **options: _Given.kwargs) -> _Found:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*args, **options)

    return called


def quiet_thread() -> None:
    """The same for the rest of this thread: each begins with numpy's own settings."""
    np.seterr(over="ignore", invalid="ignore")
