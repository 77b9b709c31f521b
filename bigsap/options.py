"""The options of one solve, checked before any work is done, and the choice of the method."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigsap import policy
from bigsap.engine.core.team import check_threads
from bigsap.errors import OptionError, check_path, flag, number, one_of, whole
from bigsap.memory import usable_memory
from bigsap.problem import Problem
from bigsap.row_cache import RowCache, parse_bytes
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Fillable
from bigsap.sources.cuda.placed import device_numbers
from bigsap.sources.cuda.row_blocks import RowsOnDevices
from bigsap.sources.cuda.slabs import SlabsOnDevices
from bigsap.strategies import METHODS
from bigsap.strategies.baselines import auction
from bigsap.strategies.first_prices import STARTS
from bigsap.strategies.orientation import resident
from bigsap.strategies.placement import TREES, device_method, device_name, ties_in_memory
from bigsap.strategies.sparse_pairs import sparse_part
from bigsap.strategies.start.samples import pairs_are_cheap
from bigsap.strategies.trees import VARIANTS

#: What is smallest: the sum of the costs, or first the largest of them.
OBJECTIVES = ("sum", "bottleneck")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one solve, see ``bigsap.solve``. Raises OptionError for invalid values."""

    maximize: bool
    method: str
    epsilon: bool
    dtype: Any
    cache: RowCache | int | str | None
    memory_limit: int | str | None
    threads: int | None
    device: str | Sequence[str]
    gap: float
    checkpoint: str | os.PathLike[str] | None
    certify: bool | str
    seed: int
    start: str = "auto"
    variant: str = "auto"
    objective: str = "sum"

    def __post_init__(self) -> None:
        for name in ("maximize", "epsilon"):
            object.__setattr__(self, name, flag(getattr(self, name), name))
        if not isinstance(self.certify, str):
            object.__setattr__(self, "certify", flag(self.certify, "certify", 'True, False or "pairs"'))
        if not one_of(self.method, ("auto", *METHODS)):
            raise OptionError(f"method must be one of {('auto', *METHODS)}, got {self.method!r}")
        if not one_of(self.objective, OBJECTIVES):
            raise OptionError(f"objective must be one of {OBJECTIVES}, got {self.objective!r}")
        if not one_of(self.start, STARTS):
            raise OptionError(f"start must be one of {STARTS}, got {self.start!r}")
        variants = {"hungarian": VARIANTS, "auction": auction.VARIANTS}.get(self.method, ("auto",))
        if not one_of(self.variant, variants):
            raise OptionError(
                f"variant of method {self.method!r} must be one of {variants}, got {self.variant!r}"
            )
        if not one_of(self.device, ("cpu", "auto")):
            device_numbers(self.device)
        gap, seed = number(self.gap), whole(self.seed)
        if gap is None or not gap >= 0:
            raise OptionError(f"gap must be a number >= 0, got {self.gap!r}")
        if self.certify not in (True, False, "pairs"):
            raise OptionError(f'certify must be True, False or "pairs", got {self.certify!r}')
        if self.gap > 0 and not self.certify:
            raise OptionError("gap needs the certificate: certify=False leaves it unknown")
        if seed is None or seed < 0:
            raise OptionError(f"seed must be an integer >= 0, got {self.seed!r}")
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, os.PathLike)):
            raise OptionError(f"checkpoint must be a path, got {self.checkpoint!r}")
        if self.checkpoint is not None:
            check_path(self.checkpoint, "checkpoint")
        if self.threads is not None:
            check_threads(self.threads)
        self.cache_bytes(0)  # not every way of solving keeps rows
        if self.memory_limit is not None:
            parse_bytes(self.memory_limit, "memory_limit")
        object.__setattr__(self, "gap", gap)  # numpy's scalars would reach results and checkpoints
        object.__setattr__(self, "seed", seed)

    def cache_budget(self, problem: Problem) -> int:
        """Return the bytes available for rows of the problem.

        Raises OptionError if the option is not a size, and if the limit is below one row. Several
        devices that share every row report for themselves what does not fit.
        """
        limit, source = self.memory_limit, problem.source
        row_bytes = problem.shape[1] * source.dtype.itemsize
        if limit is not None:
            total = parse_bytes(limit, "memory_limit")
        else:  # costs in place need no cache
            total = usable_memory() if resident(problem) is None else 0
        whole_rows = not isinstance(source, (RowsOnDevices, SlabsOnDevices))
        if limit is not None and whole_rows and total < row_bytes:
            raise OptionError(
                f"memory_limit={limit!r} does not even hold one row of costs, {row_bytes} bytes"
            )
        return self.cache_bytes(max(total // 4, row_bytes))

    def cache_bytes(self, share: int) -> int:
        """Return the bytes of ``cache``, ``share`` by default. Raises OptionError if it is not a size."""
        if isinstance(self.cache, RowCache):
            return self.cache.budget(share)
        return share if self.cache is None else parse_bytes(self.cache, "cache")

    def memory_for_lists(self, problem: Problem) -> int | None:
        """Return the bytes for the lists of compressed rows; None without a limit on host memory."""
        if self.memory_limit is None or device_name(problem.source) != "cpu":
            return None
        return parse_bytes(self.memory_limit, "memory_limit")


def _fits(problem: Problem, budget: int) -> bool:
    """Return whether all rows that only Python delivers fit in the budget; other rows need not fit."""
    source = problem.source
    if resident(problem) is not None or (isinstance(source, Fillable) and source.fill()):
        return True
    n, m = problem.shape
    return n * m * source.dtype.itemsize <= budget


def is_mapped(problem: Problem) -> bool:
    """Return whether the costs lie in a mapped file."""
    return isinstance(problem.source, ArraySource) and problem.source.mapped


def is_in_memory(problem: Problem) -> bool:
    """Return whether the costs lie in memory, contiguous or strided."""
    return isinstance(problem.source, ArraySource) and not problem.source.mapped


def ssp_takes_levels(problem: Problem, options: Options) -> bool:
    """Return whether scans of whole rows may begin with prices of levels.

    Levels must cost a small part of the scans that they save; if each row costs a call of Python,
    they do not.
    """
    if not options.epsilon or options.start in ("estimate", "none"):
        return False
    source = problem.source
    if isinstance(source, SlabsOnDevices):
        return False
    if device_name(source) != "cpu":
        return options.start == "levels" or min(problem.shape) >= policy.LEVELS_ON_DEVICE_ROWS
    return options.start == "levels" or pairs_are_cheap(problem)


def choose_method(problem: Problem, budget: int, *, trees: bool = False) -> tuple[str, str]:
    """Return the method that ``method="auto"`` chooses, and the reason.

    budget: bytes for rows that are not in memory. trees: whether all options suit the Hungarian
    method.
    """
    n, m = problem.shape
    if sparse_part(problem.source) is not None:
        return "sparse", "only listed pairs are allowed"
    on_device = device_method(problem.source, problem.sign, trees=trees)
    if on_device is not None:
        return on_device
    if min(n, m) >= policy.LEAST_ROWS_ON_LISTS and not _fits(problem, budget):
        return "compressed", "evaluates rows a few times only, and not all of them can be kept"
    if min(n, m) < policy.FEW_ROWS:
        return "ssp", f"fewer than {policy.FEW_ROWS} rows or columns"
    matrix = resident(problem)
    # A mapped matrix is read from the disk, and trees read costs once more than lists do.
    trees = trees and n == m and not is_mapped(problem)
    if trees and matrix is not None and ties_in_memory(problem, matrix):
        return "hungarian", TREES
    few = policy.FEW_ROWS_SQUARE if n == m else policy.FEW_ROWS_RECTANGULAR
    if n <= m and n < few and (matrix is not None or is_in_memory(problem)):
        return "ssp", f"a matrix in memory, fewer than {few} rows or columns"
    return "compressed", "evaluates each row a few times only"
