"""Batches of small arrays on a device: one launch, and answers that stay there until they are read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bigsap.engine.small.batch import (
    ADDRESS,
    CAP,
    COLUMN_STEP,
    COLUMNS,
    EXACT,
    FIRST_KEPT,
    KIND,
    ROW_STEP,
    ROWS,
    WORDS,
)
from bigsap.engine.small.search import OPTIMAL
from bigsap.errors import DeviceMemoryError, InputError
from bigsap.result import Result
from bigsap.run.batch_problems import BatchProblems
from bigsap.run.small_batches import SmallAnswers, kernel_sizes, places_of, price_problems
from bigsap.sources.cuda.device_kernels import load_cupy, on
from bigsap.sources.cuda.device_memory import copy_of, naming_bytes
from bigsap.sources.cuda.placed import seen_on_device
from bigsap.sources.tensors import is_tensor, lies_on_host, on_host, single, without_gradient
from bigsap.strategies.placement import batch_device, batch_on_device, fits_device
from bigsap.types import Array

# What other number types are read as, by a copy on the device.
_READ_AS = {"b1": "i4", "i1": "i4", "u1": "i4", "i2": "i4", "u2": "i4", "u4": "i8", "f2": "f4"}
# Places in the facts of a problem, after its duals and costs.
_FUN, _GAP, _BOUND = 3, 4, 5
_KERNELS_OWN = ("i4", "i8", "f4", "f8")


@dataclass(frozen=True)
class DeviceAnswers:
    """Answers that are on a device; see ``batch_result.Answers``.

    found: ``engine.cuda.small_batch.DeviceBatch``. partial: all but the found columns and numbers.
    number: of the device.
    """

    found: Any
    partial: SmallAnswers
    number: int

    @property
    def statuses(self) -> Array:
        """(k,), see ``engine.small.search``."""
        return self.partial.statuses

    @property
    def shapes(self) -> Array:
        """(k, 2), the sizes of the problems."""
        return self.partial.shapes

    @cached_property
    def on_host(self) -> SmallAnswers:
        """The same answers as if they were found on the host: with exact totals and bounds."""
        kept = self.found.kept.get()
        words = self.partial.problems
        few, many = kernel_sizes(words, self.partial.prices is not None)
        for place in np.flatnonzero((self.statuses == OPTIMAL) & (few > 0)).tolist():
            start, n, m = int(words[place, FIRST_KEPT]), int(few[place]), int(many[place])
            facts = kept[start + 2 * n + m :]
            paid = kept[start + n : start + 2 * n].tolist()
            facts[_FUN] = math.fsum(paid)
            facts[_BOUND] = _sum_down([*paid, -float(facts[_GAP])])
        columns = self.found.columns.get().astype(np.intp, copy=False)
        return replace(self.partial, columns=columns, kept=kept)

    def result(self, place: int) -> Result:
        return self.on_host.result(place)

    def statuses_told(self) -> Array:
        return self.partial.statuses_told()

    def numbers(self, name: str) -> Array:
        return self.on_host.numbers(name)

    def table(self, axis: int, width: int) -> Any:
        """Return ``col4row`` (axis 0) or ``row4col`` (axis 1), on the device."""
        return self.found.row_of_column if axis else self.found.column_of_row

    def write(self, table: Any, place: int, line: Array) -> None:
        """Set a line of such a table."""
        with on(self.number):
            table[place, : len(line)] = load_cupy().asarray(line.astype(np.int64))


def _sum_down(terms: list[float]) -> float:
    """Return the largest double that is no more than the exact sum."""
    total = math.fsum(terms)
    return math.nextafter(total, -math.inf) if math.fsum([*terms, -total]) < 0.0 else total


def solve_there(
    problems: BatchProblems, device: Any, maximize: bool, proved: bool, solve_empty: Callable[[int], Result]
) -> DeviceAnswers | None:
    """Return the answers of small arrays of one number type, found on one device in one launch.

    Statuses other than OPTIMAL are those of problems that ``solve`` must solve: large, hard or
    infeasible ones, invalid costs, doubtful proofs. None if no problem can be solved here, or the device
    has no room for all of them at once.
    proved: see ``small_arrays.solve_small``.
    """
    try:
        with naming_bytes():
            return _solved(problems, device, maximize, proved, solve_empty)
    except DeviceMemoryError:  # one problem after the other takes less
        return None


def _solved(
    problems: BatchProblems, device: Any, maximize: bool, proved: bool, solve_empty: Callable[[int], Result]
) -> DeviceAnswers | None:
    clock = time.perf_counter()
    number = batch_device(device)
    words = None if number is None else _sized(problems)
    if number is None or words is None or not len(words):
        return None
    prices = problems.row_prices(words[:, ROWS], maximize)
    if prices is not None:
        price_problems(words, prices)
    with on(number):
        few, many = kernel_sizes(words, prices is not None)
        words[~fits_device(few, many, number), KIND] = -1
        here = words[:, KIND] >= 0
        costs = _there(problems.costs, np.flatnonzero(here).tolist(), number) if here.any() else None
        if costs is None:
            return None
        owners = _addressed(words, costs, prices is not None)
    room = places_of(words, prices is not None)
    widths = (int(words[:, ROWS].max()), int(words[:, COLUMNS].max()))
    if not isinstance(costs, list):
        widths = costs.shape[1:]
    found = batch_on_device(
        number,
        np.dtype(owners[0].dtype),
        words,
        np.empty(0) if prices is None else prices.caps,
        -1.0 if maximize else 1.0,
        room,
        widths,
        (int(few[here].max()), int(many[here].max())),
    )
    empty = solve_empty if (words[:, ROWS : COLUMNS + 1] == 0).any() else None
    seconds = (time.perf_counter() - clock) / len(words)
    none = np.empty(0)
    partial = SmallAnswers(
        words, prices, maximize, proved, none, none, found.statuses, seconds, empty, f"cuda:{number}"
    )
    return DeviceAnswers(found, partial, number)


def _sized(problems: BatchProblems) -> Array | None:
    """Return the problems' words with their sizes; None for anything but arrays.

    Subclasses of numpy's arrays, of which some hide values, are left to ``solve``.
    """
    costs = problems.costs
    if isinstance(costs, (list, tuple)):
        if not all(_is_array(one) and len(one.shape) == 2 for one in costs):
            return None
        shapes = np.array([one.shape for one in costs], np.int64).reshape(-1, 2)
    elif _is_array(costs) and len(costs.shape) == 3:
        shapes = np.array(costs.shape[1:], np.int64)
    else:
        return None
    words = np.zeros((len(problems), WORDS), np.int64)
    words[:, CAP], words[:, EXACT] = -1, 1
    words[:, ROWS : COLUMNS + 1] = shapes
    for place, sizes in ((ROWS, problems.rows), (COLUMNS, problems.columns)):
        if sizes is not None:
            words[:, place] = sizes
    return words


def _is_array(costs: Any) -> bool:
    return type(costs) in (np.ndarray, load_cupy().ndarray) or is_tensor(costs)


def _there(costs: Any, places: list[int], number: int) -> Any:
    """Return an array (k, n, m), or these matrices of a list, as arrays of the device.

    None for what the kernel does not read, or matrices of several number types.
    """
    if not isinstance(costs, (list, tuple)):
        return _array(costs, number)
    some = [costs[place] for place in places]
    if all(type(one) is np.ndarray for one in some):
        return _packed(some, number)
    found = [_array(one, number) for one in some]
    return found if all(one is not None for one in found) and len({one.dtype for one in found}) == 1 else None


def _packed(costs: list[Array], number: int) -> list[Any] | None:
    """Return matrices of the host on the device, by one copy."""
    if len({one.dtype for one in costs}) > 1:
        return None
    there = _array(np.concatenate([one.ravel() for one in costs]), number)
    if there is None:
        return None
    ends = np.cumsum([one.size for one in costs]).tolist()
    return [there[end - one.size : end].reshape(one.shape) for end, one in zip(ends, costs, strict=True)]


def _array(costs: Any, number: int) -> Any:
    """Return an array on the device with a number type of the kernel; None if there is no way."""
    if is_tensor(costs):
        costs = without_gradient(costs)
        try:
            if lies_on_host(costs):
                costs = on_host(costs)
            else:
                wide = "bfloat16" in str(getattr(costs, "dtype", ""))
                costs = seen_on_device(single(costs) if wide else costs)
        except (BufferError, InputError, RuntimeError, TypeError, ValueError):  # ``solve`` says why
            return None
        if not isinstance(costs, np.ndarray) and costs.device.id != number:
            return None
    name = f"{costs.dtype.kind}{costs.dtype.itemsize}"
    name = _READ_AS.get(name, name)
    if name not in _KERNELS_OWN or not np.dtype(costs.dtype).isnative:
        return None
    there = copy_of(costs, "costs") if type(costs) is np.ndarray else costs
    return there if there.dtype == name else there.astype(name)


def _addressed(words: Array, costs: Any, gated: bool) -> list[Any]:
    """Set where the problems lie, and whether they are of integers; return the arrays that own the memory."""
    if isinstance(costs, list):
        owners = costs
        here = np.flatnonzero(words[:, KIND] >= 0)
        words[here[:, None], [ADDRESS, ROW_STEP, COLUMN_STEP]] = [
            (one.data.ptr, *one.strides) for one in costs
        ]
    else:
        _, n, m = costs.shape
        if n > m and not gated:  # the kernel's rows are the columns: next to each other
            costs = load_cupy().ascontiguousarray(costs.swapaxes(1, 2)).swapaxes(1, 2)
        words[:, ADDRESS] = costs.data.ptr + costs.strides[0] * np.arange(len(costs))
        words[:, [ROW_STEP, COLUMN_STEP]] = costs.strides[1:]
        owners = [costs]
    words[:, EXACT] &= owners[0].dtype.kind == "i"
    return owners
