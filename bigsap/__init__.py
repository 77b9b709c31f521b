"""BigSAP: exact linear assignment when the cost matrix does not fit.

>>> import numpy as np, bigsap
>>> bigsap.solve(lambda i, j: abs(i - j) % 3, shape=(4, 4)).fun
0.0

Names are imported at first use: ``import bigsap`` alone loads neither numba nor the engine.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigsap.batch import solve_many
    from bigsap.batch_result import Batch
    from bigsap.certification import certify
    from bigsap.errors import (
        BigsapError,
        CallbackError,
        CertificateError,
        CheckpointError,
        ClusterError,
        DeviceMemoryError,
        DtypeError,
        ExpressionError,
        InfeasibleError,
        InputError,
        InvalidCostError,
        KernelError,
        OptionError,
        OverflowRiskError,
        ShapeError,
        SourceError,
        StoreError,
    )
    from bigsap.k_best import Assignments, resume_k_best, solve_k_best
    from bigsap.progress import Progress
    from bigsap.proof.certificate import Certificate
    from bigsap.result import Result, Status
    from bigsap.row_cache import RowCache
    from bigsap.scipy_compat import linear_sum_assignment
    from bigsap.solve import resume, solve
    from bigsap.sources import as_source
    from bigsap.sources.arrays.matrix import from_npy
    from bigsap.sources.base import CostSource
    from bigsap.sources.combined import forbid_above, masked, scaled, sum_of
    from bigsap.sources.cuda.function import cuda_kernel
    from bigsap.sources.expression.formula import expression
    from bigsap.sources.functions.callbacks import from_function
    from bigsap.sources.http.http_rows import from_http
    from bigsap.sources.lowrank import lowrank, table
    from bigsap.sources.metrics import points
    from bigsap.sources.sparse.sparse_costs import sparse
    from bigsap.sources.zarr.zarr_store import from_zarr
    from bigsap.warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "Assignments",
    "Batch",
    "BigsapError",
    "CallbackError",
    "Certificate",
    "CertificateError",
    "CheckpointError",
    "ClusterError",
    "CostSource",
    "DeviceMemoryError",
    "DtypeError",
    "ExpressionError",
    "InfeasibleError",
    "InputError",
    "InvalidCostError",
    "KernelError",
    "OptionError",
    "OverflowRiskError",
    "Progress",
    "Result",
    "RowCache",
    "ShapeError",
    "SourceError",
    "Status",
    "StoreError",
    "__version__",
    "as_source",
    "certify",
    "cuda_kernel",
    "expression",
    "forbid_above",
    "from_function",
    "from_http",
    "from_npy",
    "from_zarr",
    "linear_sum_assignment",
    "lowrank",
    "masked",
    "points",
    "resume",
    "resume_k_best",
    "scaled",
    "solve",
    "solve_k_best",
    "solve_many",
    "sparse",
    "sum_of",
    "table",
    "warmup",
]

# The modules of the public names above.
_HOMES = {
    "bigsap.proof.certificate": "Certificate",
    "bigsap.certification": "certify",
    "bigsap.errors": (
        "BigsapError CallbackError CertificateError CheckpointError ClusterError DeviceMemoryError "
        "DtypeError "
        "ExpressionError InfeasibleError InputError InvalidCostError KernelError OptionError "
        "OverflowRiskError ShapeError SourceError StoreError"
    ),
    "bigsap.scipy_compat": "linear_sum_assignment",
    "bigsap.batch": "solve_many",
    "bigsap.batch_result": "Batch",
    "bigsap.k_best": "Assignments resume_k_best solve_k_best",
    "bigsap.progress": "Progress",
    "bigsap.result": "Result Status",
    "bigsap.row_cache": "RowCache",
    "bigsap.solve": "resume solve",
    "bigsap.sources": "as_source",
    "bigsap.sources.arrays.matrix": "from_npy",
    "bigsap.sources.base": "CostSource",
    "bigsap.sources.functions.callbacks": "from_function",
    "bigsap.sources.combined": "forbid_above masked scaled sum_of",
    "bigsap.sources.cuda.function": "cuda_kernel",
    "bigsap.sources.expression.formula": "expression",
    "bigsap.sources.lowrank": "lowrank table",
    "bigsap.sources.metrics": "points",
    "bigsap.sources.http.http_rows": "from_http",
    "bigsap.sources.sparse.sparse_costs": "sparse",
    "bigsap.sources.zarr.zarr_store": "from_zarr",
    "bigsap.warmup": "warmup",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of the package, on first access."""
    home = _HOME.get(name)
    if home is not None:
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The type of this module: importing the module ``bigsap.solve`` must not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
