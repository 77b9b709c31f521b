"""BigSAP: exact linear assignment when the cost matrix does not fit.

>>> import numpy as np, bigsap
>>> bigsap.solve(lambda i, j: abs(i - j) % 3, shape=(4, 4)).fun
0.0
"""

from __future__ import annotations

from bigsap.certificate import Certificate, certify
from bigsap.errors import (
    BigsapError,
    CallbackError,
    CertificateError,
    CheckpointError,
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
from bigsap.linear_sum import linear_sum_assignment
from bigsap.many import solve_many
from bigsap.monitor import Progress
from bigsap.result import Result, Status
from bigsap.rows import RowCache
from bigsap.solve import resume, solve
from bigsap.sources import as_source
from bigsap.sources.arrays import from_npy
from bigsap.sources.base import CostSource
from bigsap.sources.callbacks import from_function
from bigsap.sources.combined import forbid_above, masked, scaled, sum_of
from bigsap.sources.device_function import cuda_kernel
from bigsap.sources.expression import expression
from bigsap.sources.lowrank import lowrank, table
from bigsap.sources.metrics import points
from bigsap.sources.remote import from_http
from bigsap.sources.zarr_store import from_zarr
from bigsap.warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "BigsapError",
    "CallbackError",
    "Certificate",
    "CertificateError",
    "CheckpointError",
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
    "scaled",
    "solve",
    "solve_many",
    "sum_of",
    "table",
    "warmup",
]
