"""Types of arrays, and of a function that many take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.integer[Any]]
#: Called now and then with how much of the work is done.
Tick: TypeAlias = Callable[[int], None]
